"""Keyword spotting on log-mel patches, trained with accelerate on XLA."""
import random

import torch_xla
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

WORDS = 6
MELS, FRAMES = 24, 32


def synth_patches(n, seed):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, WORDS, (n,), generator=g)
    patches = torch.randn(n, MELS, FRAMES, generator=g)
    rows = torch.arange(MELS).view(1, -1, 1)
    patches += 1.5 * ((rows // 4) == labels.view(-1, 1, 1)).float()
    return TensorDataset(patches, labels)


class SpecAugment:
    """One frequency band and one time band per batch."""

    def __init__(self, freq=6, time=8, seed=0):
        self.freq, self.time = freq, time
        self.rng = random.Random(seed)

    def __call__(self, spec):
        spec = spec.clone()
        f = self.rng.randint(1, self.freq)
        f0 = self.rng.randint(0, MELS - f)
        spec[:, f0:f0 + f] = 0.0
        t = self.rng.randint(1, self.time)
        t0 = self.rng.randint(0, FRAMES - t)
        spec[:, :, t0:t0 + t] = 0.0
        return spec


class Spotter(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.mix = nn.Linear(MELS, width)
        self.head = nn.Linear(width, WORDS)

    def forward(self, x):
        x = F.relu(self.mix(x.transpose(1, 2)))
        return self.head(x.mean(1))


class Meter:
    def __init__(self):
        self.total, self.n = None, 0

    def add(self, value):
        self.total = value if self.total is None else self.total + value
        self.n += 1

    def mean(self):
        return float(self.total) / max(self.n, 1)


def evaluate(accelerator, model, loader):
    model.eval()
    right = torch.zeros((), device=accelerator.device)
    seen = 0
    with torch.no_grad():
        for x, y in loader:
            pred = model(x).argmax(-1)
            pred, y = accelerator.gather_for_metrics((pred, y))
            right += (pred == y).sum()
            seen += len(y)
            xm.mark_step()
    model.train()
    return float(right) / seen


def main():
    torch.manual_seed(3)
    accelerator = Accelerator()
    model = Spotter()
    optimizer = torch.optim.SGD(model.parameters(), lr=5e-2, momentum=0.9)
    train = DataLoader(synth_patches(96, 1), batch_size=16, shuffle=True, drop_last=True)
    valid = DataLoader(synth_patches(48, 2), batch_size=16)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12)
    model, optimizer, train, valid, schedule = accelerator.prepare(
        model, optimizer, train, valid, schedule)
    augment = SpecAugment()
    print("device", accelerator.device)
    for epoch in range(3):
        meter = Meter()
        for x, y in train:
            loss = F.cross_entropy(model(augment(x)), y)
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            meter.add(loss.detach())
            xm.mark_step()
        acc = evaluate(accelerator, model, valid)
        print(f"epoch {epoch} loss {meter.mean():.4f} acc {acc:.3f}")


if __name__ == "__main__":
    main()
