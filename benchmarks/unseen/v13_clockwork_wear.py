"""Hours until service of tower clocks from the ticks of their escapement: a compiled gated convolution."""
import argparse
import random
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

WINDOWS = (64, 128)  # ticks; short recordings come from travelling inspectors


@dataclass(frozen=True)
class Options:
    epochs: int = 12
    batch: int = 48
    lr: float = 2e-3
    log_every: int = 50
    clocks: int = 2400
    width: int = 24


class TickRecordings(Dataset):
    """Intervals between ticks: drift from dry oil, periodic error from a worn tooth, jitter from the pallet."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.items = []
        for _ in range(n):
            length = WINDOWS[int(rng.random() < 0.5)]
            wear = rng.random()
            ticks = np.arange(length)
            error = 0.5 * wear * (ticks % 15 == rng.integers(15)) + 0.1 * wear * np.sin(ticks / 30)
            intervals = error + rng.normal(0, 0.05 + 0.1 * wear, length)
            self.items.append((intervals.astype(np.float32), np.float32(1 - wear)))
        self.lengths = [len(intervals) for intervals, _ in self.items]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class SameLength(Sampler):
    """Full batches of one window length each, in random order."""

    def __init__(self, lengths, size, seed):
        self.groups = [[i for i, n in enumerate(lengths) if n == window] for window in WINDOWS]
        self.size, self.rng = size, random.Random(seed)

    def __iter__(self):
        batches = []
        for group in self.groups:
            self.rng.shuffle(group)
            batches += [group[i : i + self.size] for i in range(0, len(group) - self.size + 1, self.size)]
        self.rng.shuffle(batches)
        return iter(batches)

    def __len__(self):
        return sum(len(group) // self.size for group in self.groups)


class GatedLayer(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv = nn.Conv1d(width, 2 * width, 3, padding=dilation, dilation=dilation)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x):
        value, gate = self.conv(self.norm(x)).chunk(2, 1)
        return x + torch.tanh(value) * torch.sigmoid(gate)


class WearNet(nn.Module):
    def __init__(self, width, dilations=(1, 2, 4)):
        super().__init__()
        self.stem = nn.Conv1d(1, width, 5, padding=2)
        self.layers = nn.ModuleList(GatedLayer(width, d) for d in dilations)
        self.head = nn.Linear(2 * width, 2)

    def forward(self, ticks):
        x = self.stem(ticks.unsqueeze(1))
        for layer in self.layers:
            x = layer(x)
        pooled = torch.cat([x.mean(-1), x.std(-1)], -1)
        middle, log_spread = self.head(pooled).unbind(-1)
        return torch.sigmoid(middle), log_spread


@torch.compile
def interval_loss(middle, log_spread, remaining, smoothing):
    spread = F.softplus(log_spread) + smoothing
    return (torch.log(spread) + (remaining - middle).abs() / spread).mean()


def train(model, loader, options):
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.7)
    running, step, began = torch.zeros(()), 0, time.perf_counter()
    smoothing = torch.tensor(0.2)
    for epoch in range(options.epochs):
        smoothing.mul_(0.8).clamp_(min=0.01)
        for ticks, remaining in loader:
            middle, log_spread = model(ticks)
            loss = interval_loss(middle, log_spread, remaining, smoothing)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            running += loss.detach()
            step += 1
            if step % options.log_every == 0:
                print(f"epoch {epoch:2d} step {step:4d} loss {running.item() / options.log_every:.3f} "
                      f"lr {schedule.get_last_lr()[0]:.5f} {time.perf_counter() - began:.1f} s")
                running.zero_()
        schedule.step()
    return step


@torch.no_grad()
def typical_error(model, recordings, size=100):
    """The evaluation takes one window length and batches of its own; runs once."""
    ticks = torch.stack([torch.from_numpy(t) for t, _ in recordings.items if len(t) == WINDOWS[1]])
    remaining = torch.tensor([r for t, r in recordings.items if len(t) == WINDOWS[1]])
    whole = len(ticks) // size * size
    errors = [(model(t)[0] - r).abs() for t, r in zip(ticks[:whole].split(size), remaining[:whole].split(size))]
    return torch.cat(errors).median().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=Options.epochs)
    options = Options(epochs=parser.parse_args().epochs)
    torch.manual_seed(12)
    recordings = TickRecordings(options.clocks, 0)
    loader = DataLoader(recordings, batch_sampler=SameLength(recordings.lengths, options.batch, 3))
    net = WearNet(options.width)
    model = torch.compile(net, dynamic=False)  # two windows, so two graphs
    steps = train(model, loader, options)
    error = typical_error(net, TickRecordings(600, 1))
    print(f"{steps} steps; the median recording is off by {error:.3f} of a service interval")


if __name__ == "__main__":
    main()
