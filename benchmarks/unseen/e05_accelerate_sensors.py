"""Classifies windows of machine vibration with a 1D ConvNet; the loop is Accelerate's, on an XLA device."""
import argparse
import logging
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla  # noqa: F401
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("sensors")
STATES = ["normal", "imbalance", "bearing", "loose"]


def make_windows(n, length, seed):
    gen = torch.Generator().manual_seed(seed)
    label = torch.randint(0, len(STATES), (n,), generator=gen)
    t = torch.linspace(0, 1, length)
    base = torch.sin(2 * math.pi * 8 * t + 6.28 * torch.rand(n, 1, generator=gen))
    tone = torch.tensor([0.0, 16.0, 27.0, 41.0])[label].unsqueeze(1)
    x = base + 0.5 * torch.sin(2 * math.pi * tone * t) + 0.3 * torch.randn(n, length, generator=gen)
    return TensorDataset(x.unsqueeze(1), label)


class VibrationNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, width, 9, stride=4), nn.GELU(), nn.Conv1d(width, width, 5, stride=2), nn.GELU(),
        )
        self.head = nn.Linear(width, len(STATES))

    def forward(self, x):
        return self.head(self.features(x).mean(-1))


class ConfusionMatrix:
    """Counts of (true, predicted), filled batch by batch."""

    def __init__(self, classes):
        self.counts = torch.zeros(classes, classes, dtype=torch.long)

    def update(self, predicted, target):
        self.counts.index_put_((target.cpu(), predicted.cpu()), torch.tensor(1), accumulate=True)

    @property
    def accuracy(self):
        return (self.counts.diag().sum() / self.counts.sum().clamp(min=1)).item()


def train_epoch(accelerator, model, loader, optimizer, schedule, max_norm):
    model.train()
    skipped = 0
    for x, y in loader:
        loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
        accelerator.backward(loss)
        norm = accelerator.clip_grad_norm_(model.parameters(), max_norm)
        if torch.isfinite(norm):
            optimizer.step()
        else:
            skipped += 1
        schedule.step()
        optimizer.zero_grad()
    return loss.item(), skipped


@torch.no_grad()
def evaluate(accelerator, model, loader):
    model.eval()
    matrix = ConfusionMatrix(len(STATES))
    for x, y in loader:
        predicted, target = accelerator.gather_for_metrics((model(x).argmax(-1), y))
        matrix.update(predicted, target)
    return matrix


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--windows", type=int, default=640)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    set_seed(11)

    accelerator = Accelerator()
    train_loader = DataLoader(make_windows(args.windows, args.length, 0), batch_size=args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(make_windows(320, args.length, 1), batch_size=args.batch_size)
    model = VibrationNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs * len(train_loader))
    model, optimizer, train_loader, test_loader, schedule = accelerator.prepare(
        model, optimizer, train_loader, test_loader, schedule
    )
    for epoch in range(args.epochs):
        loss, skipped = train_epoch(accelerator, model, train_loader, optimizer, schedule, max_norm=1.0)
        matrix = evaluate(accelerator, model, test_loader)
        accelerator.print(f"epoch {epoch}: loss {loss:.3f}, skipped {skipped}, accuracy {matrix.accuracy:.3f}")


if __name__ == "__main__":
    main()
