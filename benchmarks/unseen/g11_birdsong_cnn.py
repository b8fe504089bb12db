"""Species tags from spectrogram patches. Activation ranges are tracked for later int8 export."""
import random
from collections import defaultdict, deque

import torch
import torch.nn as nn
import torch.nn.functional as F

N_MELS, FRAMES, SPECIES = 32, 64, 20
BATCH, STEPS = 24, 160


class RangeTracker(nn.Module):
    """Remembers the span an activation has used (the exporter wants percentiles of it)."""

    store = defaultdict(lambda: deque(maxlen=512))

    def __init__(self, tag):
        super().__init__()
        self.tag = tag

    def forward(self, x):
        span = x.detach().abs().amax()
        self.remember(span)
        return x

    def remember(self, span):
        q = RangeTracker.store[self.tag]
        q.append(round(span.item(), 4))


class SepBlock(nn.Module):
    def __init__(self, cin, cout, tag, stride=1):
        super().__init__()
        self.dw = nn.Conv2d(cin, cin, 3, stride=stride, padding=1, groups=cin, bias=False)
        self.pw = nn.Conv2d(cin, cout, 1, bias=False)
        self.bn = nn.BatchNorm2d(cout)
        self.track = RangeTracker(tag)

    def forward(self, x):
        return self.track(F.hardswish(self.bn(self.pw(self.dw(x)))))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [16, 24, 32, 48, 64]
        self.stem = nn.Conv2d(1, widths[0], 3, padding=1)
        self.blocks = nn.Sequential(*[
            SepBlock(a, b, f"b{i}", stride=2 if i % 2 == 0 else 1)
            for i, (a, b) in enumerate(zip(widths, widths[1:]))
        ])
        self.fc = nn.Linear(widths[-1], SPECIES)

    def forward(self, spec):
        h = self.blocks(self.stem(spec))
        return self.fc(h.mean((2, 3)))


class Songs(torch.utils.data.Dataset):
    def __init__(self, n):
        self.rng = random.Random(5)
        self.base = [[self.rng.random() for _ in range(N_MELS)] for _ in range(SPECIES)]
        self.n = n

    def __len__(self):
        return self.n

    def render(self, label):
        """Draw the patch cell by cell: chirp on the species' bands, then speckle."""
        rate = self.rng.uniform(0.5, 2.0)
        rows = []
        for m in range(N_MELS):
            b = self.base[label][m]
            row = []
            for t in range(FRAMES):
                v = b if (int(t * rate) + m) % 7 < 3 else 0.1 * b
                if self.rng.random() < 0.15:
                    v += self.rng.gauss(0.0, 0.3)
                row.append(v)
            rows.append(row)
        return rows

    def __getitem__(self, i):
        label = i % SPECIES
        return torch.tensor(self.render(label)).unsqueeze(0), label


def run():
    torch.manual_seed(2)
    loader = torch.utils.data.DataLoader(Songs(BATCH * STEPS), batch_size=BATCH, shuffle=True, drop_last=True)
    net = Tagger()
    model = torch.compile(net, backend="aot_eager")
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    ema = torch.zeros(())
    for step, (spec, label) in enumerate(loader):
        loss = F.cross_entropy(model(spec), label)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        ema.lerp_(loss.detach(), 0.05)
        if step % 80 == 79:
            print(f"[{step + 1}/{STEPS}] loss {ema.item():.3f}")
    for tag, q in RangeTracker.store.items():
        s = sorted(q)
        print(tag, "p99", s[int(0.99 * (len(s) - 1))])


if __name__ == "__main__":
    run()
