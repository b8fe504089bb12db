"""Motor imagery from EEG epochs of many subjects, with a spatial filter per subject."""
import collections
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CHANNELS, SAMPLES, CLASSES = 16, 128, 4


class SubjectFilter(nn.Module):
    """A learned spatial mixing for each subject, kept by the subject's name."""

    def __init__(self, subjects, channels):
        super().__init__()
        self.filters = nn.ModuleDict({s: nn.Linear(channels, channels, bias=False) for s in subjects})
        for f in self.filters.values():
            nn.init.eye_(f.weight)

    def forward(self, x, subject):
        return self.filters[subject](x.transpose(1, 2)).transpose(1, 2)


class EegNet(nn.Module):
    def __init__(self, subjects, width=24, depth=3):
        super().__init__()
        self.spatial = SubjectFilter(subjects, CHANNELS)
        self.stem = nn.Conv1d(CHANNELS, width, 9, padding=4)
        self.convs = nn.ModuleList([nn.Conv1d(width, width, 5, padding=2) for _ in range(depth)])
        self.norms = nn.ModuleList([nn.GroupNorm(4, width) for _ in range(depth)])
        self.head = nn.Linear(2 * width, CLASSES)

    def forward(self, x, subject):
        x = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)
        h = self.stem(self.spatial(x, subject))
        for conv, norm in zip(self.convs, self.norms):
            h = h + F.elu(norm(conv(h)))
        power = torch.log(h.square().mean(-1) + 1e-5)
        return self.head(torch.cat([h.mean(-1), power], 1))


class Session:
    def __init__(self, name, trials, seed):
        g = torch.Generator().manual_seed(seed)
        self.name = name
        self.y = torch.randint(0, CLASSES, (trials,), generator=g)
        t = torch.arange(SAMPLES) / 128.0
        wave = torch.sin(6.28 * (8 + 3 * self.y[:, None].float()) * t)
        mix = torch.randn(CHANNELS, generator=g)
        self.x = wave[:, None] * mix[None, :, None] + torch.randn(trials, CHANNELS, SAMPLES, generator=g)

    def batches(self, size, generator):
        order = torch.randperm(len(self.y), generator=generator)
        for i in range(0, len(order) - size + 1, size):
            idx = order[i:i + size]
            yield self.name, self.x[idx], self.y[idx]


def interleave(sessions, size, seed):
    g = torch.Generator().manual_seed(seed)
    items = [b for s in sessions for b in s.batches(size, g)]
    for i in torch.randperm(len(items), generator=g).tolist():
        yield items[i]


def main(subjects=14, trials=64, batch=16, epochs=6):
    torch.manual_seed(0)
    names = [f"S{i:03d}" for i in range(1, subjects + 1)]
    train = [Session(n, trials, i) for i, n in enumerate(names)]
    test = [Session(n, batch, 500 + i) for i, n in enumerate(names)]
    net = EegNet(names)
    model = torch.compile(net, backend="aot_eager")
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for epoch in range(epochs):
        t0, losses = time.time(), []
        net.train()
        for name, x, y in interleave(train, batch, epoch):
            loss = F.cross_entropy(model(x, name), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        net.eval()
        hits = collections.Counter()
        with torch.no_grad():
            for s in test:
                hits[s.name] = (net(s.x, s.name).argmax(1) == s.y).float().mean().item()
        acc = sum(hits.values()) / len(hits)
        print(f"epoch {epoch} loss {torch.stack(losses).mean():.3f} acc {acc:.3f} worst {min(hits.values()):.2f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
