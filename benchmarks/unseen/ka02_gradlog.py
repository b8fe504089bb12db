"""Speech-command keyword spotting: depthwise-separable CNN on log-mel patches,
with the per-layer diagnostics our group always plots for a new architecture."""
import collections
import json

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

N_MELS, N_FRAMES, N_WORDS = 20, 24, 10
torch.manual_seed(3)


def make_corpus(n):
    """Each word is a formant trajectory; speakers shift and blur it."""
    words = torch.randint(0, N_WORDS, (n,))
    mel = torch.arange(N_MELS).view(1, N_MELS, 1).float()
    time = torch.linspace(0, 1, N_FRAMES).view(1, 1, N_FRAMES)
    start = (words.float() * 1.7 + 2).view(-1, 1, 1)
    slope = ((words % 4).float() * 4 - 6).view(-1, 1, 1)
    shift = torch.randn(n, 1, 1)
    track = start + slope * time + shift
    energy = torch.exp(-((mel - track) ** 2) / 6.0)
    return (energy + 0.3 * torch.randn_like(energy)).unsqueeze(1), words


class SeparableBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.depth = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.norm1 = nn.GroupNorm(4, channels)
        self.point = nn.Conv2d(channels, channels, 1, bias=False)
        self.norm2 = nn.GroupNorm(4, channels)

    def forward(self, x):
        y = F.relu(self.norm1(self.depth(x)))
        return x + F.relu(self.norm2(self.point(y)))


class KeywordNet(nn.Module):
    def __init__(self, channels=16, depth=3):
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 5, stride=2, padding=2)
        self.blocks = nn.Sequential(*[SeparableBlock(channels) for _ in range(depth)])
        self.out = nn.Linear(channels, N_WORDS)

    def forward(self, x):
        return self.out(self.blocks(F.relu(self.stem(x))).mean((2, 3)))


class Diagnostics:
    """Running statistics of the gradient-to-weight ratio of every layer."""

    def __init__(self, model, momentum=0.9):
        self.layers = {n: p for n, p in model.named_parameters() if p.dim() > 1}
        self.momentum = momentum
        self.ratio = collections.defaultdict(float)
        self.history = []

    def update(self):
        for name, weight in self.layers.items():
            r = weight.grad.norm() / (weight.norm() + 1e-8)
            self.ratio[name] = self.momentum * self.ratio[name] + (1 - self.momentum) * float(r)
        self.history.append(dict(self.ratio))

    def summary(self):
        return {n: round(v, 5) for n, v in self.ratio.items()}


def evaluate(model, mels, words, batch_size):
    model.eval()
    hits = torch.zeros((), device=mels.device)
    with torch.no_grad():
        for i in range(0, len(mels), batch_size):
            guess = model(mels[i:i + batch_size]).argmax(1)
            hits += (guess == words[i:i + batch_size]).sum()
            xm.mark_step()
    model.train()
    return hits.item() / len(mels)


def main(epochs=3, batch_size=64, per_epoch=30):
    device = torch_xla.device()
    mels, words = make_corpus(batch_size * per_epoch)
    test_mels, test_words = (t.to(device) for t in make_corpus(512))
    model = KeywordNet().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    diagnostics = Diagnostics(model)
    for epoch in range(epochs):
        order = torch.randperm(len(mels))
        running = torch.zeros((), device=device)
        for step in range(per_epoch):
            pick = order[step * batch_size:(step + 1) * batch_size]
            x, y = mels[pick].to(device), words[pick].to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
            loss.backward()
            diagnostics.update()
            xm.optimizer_step(optimizer)
            running += loss.detach()
            xm.mark_step()
        accuracy = evaluate(model, test_mels, test_words, batch_size)
        print(f"epoch {epoch} loss {running.item() / per_epoch:.3f} accuracy {accuracy:.3f}")
    print(json.dumps(diagnostics.summary()))


if __name__ == "__main__":
    main()
