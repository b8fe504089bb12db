"""Estimate the number of moths per light-trap frame from silhouettes (density-free count regression)."""
import argparse
import logging
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import torch_xla.core.xla_model as xm

log = logging.getLogger("moths")


class TrapFrames(Dataset):
    """Frames of a white sheet with dark, roughly elliptic animals on it."""

    def __init__(self, n, size=24, seed=0):
        rng = np.random.default_rng(seed)
        yy, xx = np.mgrid[0:size, 0:size].astype(np.float32)
        self.frames = np.ones((n, 1, size, size), np.float32)
        self.counts = rng.poisson(5, n).astype(np.float32)
        for i in range(n):
            for _ in range(int(self.counts[i])):
                cx, cy = rng.uniform(2, size - 2, 2)
                a, b = rng.uniform(1.0, 2.5, 2)
                self.frames[i, 0] -= 0.6 * np.exp(-((xx - cx) / a) ** 2 - ((yy - cy) / b) ** 2)
        self.frames += rng.normal(0, 0.05, self.frames.shape).astype(np.float32)

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, i):
        return self.frames[i], self.counts[i]


class CountNet(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.GroupNorm(3, width),
            nn.GELU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.GroupNorm(3, 2 * width),
            nn.GELU(),
            nn.Conv2d(2 * width, 2 * width, 3, stride=2, padding=1),
            nn.GELU(),
        )
        self.head = nn.Linear(2 * width, 1)

    def forward(self, frames):
        density = self.features(frames).sum(dim=(2, 3))
        return nn.functional.softplus(self.head(density * 0.05)).squeeze(1)


class RobustCountLoss(nn.Module):
    """Generalised Charbonnier penalty; starts quadratic and becomes nearly absolute, as labels are noisy."""

    def __init__(self, first=2.0, last=0.9, eps=1e-3):
        super().__init__()
        self.first, self.last, self.eps = first, last, eps
        self.power = first

    def set_progress(self, fraction):
        self.power = self.first + (self.last - self.first) * fraction

    def forward(self, predicted, counted):
        squared = (predicted - counted) ** 2 + self.eps**2
        return (squared ** (self.power / 2)).mean()


def train_epoch(model, loader, criterion, optimizer, device, first_step, log_every):
    model.train()
    seen, total = 0, torch.zeros((), device=device)
    step = first_step
    for frames, counts in loader:
        frames, counts = frames.to(device), counts.to(device)
        optimizer.zero_grad()
        loss = criterion(model(frames), counts)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        log.debug(f"step {step}: gradient norm {norm:.4f}")
        optimizer.step()
        total += loss.detach() * len(counts)
        seen += len(counts)
        xm.mark_step()
        step += 1
        if step % log_every == 0:
            log.info("step %d: mean loss %.4f", step, total.item() / seen)
    return step


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    absolute, n = torch.zeros((), device=device), 0
    for frames, counts in loader:
        absolute += (model(frames.to(device)) - counts.to(device)).abs().sum()
        n += len(counts)
        xm.mark_step()
    return absolute.item() / n


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--frames", type=int, default=960)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--log-every", type=int, default=50)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    torch.manual_seed(3)
    device = xm.xla_device()
    train = DataLoader(TrapFrames(args.frames), args.batch_size, shuffle=True, drop_last=True)
    held_out = DataLoader(TrapFrames(256, seed=1), 64)
    model = CountNet().to(device)
    criterion = RobustCountLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    step, began = 0, time.perf_counter()
    for epoch in range(args.epochs):
        criterion.set_progress(epoch / max(1, args.epochs - 1))
        for group in optimizer.param_groups:
            group["lr"] = args.lr * 0.9**epoch
        step = train_epoch(model, train, criterion, optimizer, device, step, args.log_every)
        error = evaluate(model, held_out, device)
        log.info("epoch %d: power %.2f, off by %.3f moths", epoch, criterion.power, error)
    log.info("%d steps in %.1f s", step, time.perf_counter() - began)


if __name__ == "__main__":
    main()
