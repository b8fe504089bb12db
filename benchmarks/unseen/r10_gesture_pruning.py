"""Gestures from a wrist sensor for a tiny controller: gradual magnitude pruning while training."""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla

AXES, SAMPLES, GESTURES = 6, 40, 5


def gestures(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, GESTURES, (n,), generator=g)
    t = torch.linspace(0, 6.28, SAMPLES)
    phase = torch.rand(n, AXES, 1, generator=g)
    freq = (1 + y)[:, None, None] * torch.linspace(0.5, 1.5, AXES)[None, :, None]
    x = torch.sin(freq * t + 2 * phase) + 0.4 * torch.randn(n, AXES, SAMPLES, generator=g)
    return x, y


class Residual(nn.Module):
    def __init__(self, width, keep):
        super().__init__()
        self.conv1 = nn.Conv1d(width, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, padding=1)
        self.keep = keep

    def forward(self, x):
        if self.training and random.random() > self.keep:
            return x
        y = self.conv2(F.relu(self.conv1(x)))
        return x + (y / self.keep if self.training else y)


class GestureNet(nn.Module):
    def __init__(self, width=16, blocks=3, last_keep=0.6):
        super().__init__()
        self.stem = nn.Conv1d(AXES, width, 5, stride=2, padding=2)
        keeps = [1 - (1 - last_keep) * (i + 1) / blocks for i in range(blocks)]
        self.blocks = nn.ModuleList(Residual(width, k) for k in keeps)
        self.head = nn.Linear(width, GESTURES)

    def forward(self, x):
        x = F.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(-1))


class Pruner:
    """Zhu & Gupta (2017): the share of zeros rises along a cubic curve."""

    def __init__(self, model, final, begin, end, every):
        self.final, self.begin, self.end, self.every = final, begin, end, every
        self.weights = {n: p for n, p in model.named_parameters() if p.dim() > 1}
        self.masks = {n: torch.ones_like(p) for n, p in self.weights.items()}

    def sparsity(self, step):
        done = min(max((step - self.begin) / (self.end - self.begin), 0.0), 1.0)
        return self.final * (1 - (1 - done) ** 3)

    @torch.no_grad()
    def update(self, step):
        if step < self.begin or step > self.end or step % self.every:
            return
        s = self.sparsity(step)
        for name, w in self.weights.items():
            drop = int(s * w.numel())
            if drop == 0:
                continue
            magnitude = w.abs().flatten()
            threshold = magnitude.topk(drop, largest=False).values[-1]
            self.masks[name] = (w.abs() > threshold).to(w.dtype)
        torch_xla.sync()

    @torch.no_grad()
    def apply(self):
        for name, w in self.weights.items():
            w.mul_(self.masks[name])

    def zeros(self):
        total = sum(m.numel() for m in self.masks.values())
        return 1 - torch.stack([m.sum() for m in self.masks.values()]).sum().item() / total


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        hit = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return hit


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=240)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--sparsity", type=float, default=0.8)
    args = ap.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    device = torch_xla.device()
    x, y = gestures(800, 1)
    xt, yt = (t.to(device) for t in gestures(200, 2))
    model = GestureNet().to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    pruner = Pruner(model, args.sparsity, begin=40, end=200, every=10)
    torch_xla.sync()

    for step in range(1, args.steps + 1):
        i = torch.randint(0, len(x), (args.batch,))
        xb, yb = x[i].to(device), y[i].to(device)
        opt.zero_grad()
        loss = F.cross_entropy(model(xb), yb, label_smoothing=0.05)
        loss.backward()
        opt.step()
        pruner.apply()
        torch_xla.sync()
        pruner.update(step)
        if step % 60 == 0:
            print(f"step {step}: loss {loss.item():.3f}, zeros {pruner.zeros():.2f}")
    print(f"accuracy {accuracy(model, xt, yt):.3f}")


if __name__ == "__main__":
    main()
