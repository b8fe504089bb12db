"""Colony state from hive microphones: queenright, queenless, swarming, robbed."""
import argparse
import logging
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

import torch_xla
import torch_xla.core.xla_model as xm

log = logging.getLogger("hive")

STATES = ["queenright", "queenless", "swarming", "robbed"]
MELS, FRAMES = 32, 64


class HiveClips(Dataset):
    """Log-mel patches; every colony state has its own harmonics and drift."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.y = rng.integers(0, len(STATES), n)
        t = np.linspace(0, 1, FRAMES)
        self.x = rng.normal(0, 0.6, (n, 1, MELS, FRAMES)).astype(np.float32)
        for i, c in enumerate(self.y):
            for h in range(1, 4):
                row = int(5 + 3 * c + 5 * h + 2 * np.sin(2 * np.pi * rng.random())) % MELS
                self.x[i, 0, row] += 1.5 * np.cos(2 * np.pi * (c + 1) * t) / h

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], int(self.y[i])


def collate(items):
    xs, ys = zip(*items)
    return torch.from_numpy(np.stack(xs)), torch.tensor(ys)


class SpecAugment:
    """Park et al. 2019: one band of frequencies and one stretch of time are blanked."""

    def __init__(self, freq_width=6, time_width=12, grid=8, seed=0):
        self.freq_width, self.time_width, self.grid = freq_width, time_width, grid
        self.rng = random.Random(seed)

    def band(self):
        f0 = self.rng.randrange(MELS - self.freq_width)
        keep = torch.ones(1, 1, MELS, 1)
        keep[:, :, f0:f0 + self.freq_width] = 0.0
        return keep

    def __call__(self, spec):
        t0 = self.grid * self.rng.randrange((FRAMES - self.time_width) // self.grid)
        out = spec * self.band().to(spec.device)
        out[..., t0:t0 + self.time_width] = 0.0
        return out


class HiveNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 5, stride=2, padding=2)
        self.mid = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.head = nn.Linear(2 * width, len(STATES))

    def forward(self, x):
        x = F.gelu(self.stem(x))
        x = F.gelu(self.mid(x))
        return self.head(x.mean((2, 3)))


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    hits = torch.zeros((), device=device)
    seen = 0
    for x, y in loader:
        hits += (model(x.to(device)).argmax(1) == y.to(device)).sum()
        seen += len(y)
        xm.mark_step()
    model.train()
    return hits.item() / seen


def train_epoch(epoch, model, opt, loader, augment, device):
    total = torch.zeros((), device=device)
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        opt.zero_grad()
        loss = F.cross_entropy(model(augment(x)), y)
        loss.backward()
        xm.optimizer_step(opt, barrier=False)
        total += loss.detach()
        xm.mark_step()
        grad = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        log.debug(f"epoch {epoch} step {step}: loss {loss.item():.4f} grad {grad.item():.3f}")
    return total.item() / (step + 1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")

    torch.manual_seed(4)
    device = xm.xla_device()
    train = DataLoader(HiveClips(512, 1), batch_size=args.batch, shuffle=True, drop_last=True,
                       collate_fn=collate, num_workers=args.workers)
    test = DataLoader(HiveClips(128, 2), batch_size=64, collate_fn=collate)
    model = HiveNet().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    augment = SpecAugment()

    for epoch in range(args.epochs):
        t0 = time.perf_counter()
        loss = train_epoch(epoch, model, opt, train, augment, device)
        log.info("epoch %d  loss %.3f  %.1f s", epoch, loss, time.perf_counter() - t0)
    log.info("accuracy %.3f", evaluate(model, test, device))


if __name__ == "__main__":
    main()
