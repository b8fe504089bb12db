"""Glucose of made-up patients: convolutions over records of any length, compiled once with dynamic shapes."""
import contextlib
import math
import random
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Sampler


class Record:
    """Glucose every five minutes, with the meals and insulin that moved it."""

    __slots__ = ("inputs", "target")

    def __init__(self, rng, g):
        n = rng.randint(40, 140)
        meals = (torch.rand(n, generator=g) < 0.06).float() * (20 + 60 * torch.rand(n, generator=g))
        insulin = (torch.rand(n, generator=g) < 0.05).float() * 5 * torch.rand(n, generator=g)
        rise, fall = rng.uniform(0.02, 0.05), rng.uniform(0.4, 0.9)
        level, levels, active = 110.0, [], 0.0
        for m, i in zip(meals.tolist(), insulin.tolist()):
            active = 0.9 * active + rise * m - fall * i
            level += active - 0.03 * (level - 110)
            levels.append(level)
        glucose = (torch.tensor(levels) - 110) / 30
        self.inputs = torch.stack([glucose + 0.05 * torch.randn(n, generator=g), meals / 40, insulin / 3], -1)
        self.target = torch.cat([glucose[6:], glucose[-1:].expand(6)])


def collate(records):
    inputs = pad_sequence([r.inputs for r in records], batch_first=True)
    target = pad_sequence([r.target for r in records], batch_first=True, padding_value=math.nan)
    return inputs, target


class BySize(Sampler):
    """Batches of records of nearly the same length, in random order."""

    def __init__(self, records, size, seed):
        self.order = sorted(range(len(records)), key=lambda i: len(records[i].target))
        self.size = size
        self.rng = random.Random(seed)

    def __len__(self):
        return len(self.order) // self.size

    def __iter__(self):
        batches = [self.order[i * self.size:(i + 1) * self.size] for i in range(len(self))]
        self.rng.shuffle(batches)
        return iter(batches)


class CausalConv(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(width, 2 * width, 3, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x):
        a, b = self.conv(nn.functional.pad(x, (self.pad, 0))).chunk(2, 1)
        return x + self.mix(torch.tanh(a) * torch.sigmoid(b))


class GlucoseNet(nn.Module):
    def __init__(self, width=24, dilations=(1, 2, 4)):
        super().__init__()
        self.embed = nn.Linear(3, width)
        self.layers = nn.ModuleList([CausalConv(width, d) for d in dilations])
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(width, 1)

    def forward(self, inputs):
        x = self.embed(inputs).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        x = self.dropout(x.transpose(1, 2))
        return inputs[..., 0] + self.head(x).squeeze(-1)


def masked_mse(prediction, target):
    known = ~target.isnan()
    error = torch.where(known, prediction - torch.nan_to_num(target), 0.0)
    return error.square().sum() / known.sum()


@contextlib.contextmanager
def timed(label):
    began = time.perf_counter()
    yield
    print(f"{label} took {time.perf_counter() - began:.2f} s")


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    errors = torch.stack([masked_mse(model(inputs), target) for inputs, target in loader])
    model.train()
    return errors.mean().sqrt().item() * 30


def main():
    torch.manual_seed(31)
    rng, g = random.Random(31), torch.Generator().manual_seed(31)
    records = [Record(rng, g) for _ in range(800)]
    train, valid = records[:720], records[720:]
    train_loader = DataLoader(train, batch_sampler=BySize(train, 8, 1), collate_fn=collate)
    valid_loader = DataLoader(valid, batch_size=8, collate_fn=collate)
    net = GlucoseNet()
    model = torch.compile(net, dynamic=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    average = torch.zeros(())
    step = 0
    for epoch in range(4):
        with timed(f"epoch {epoch}"):
            for inputs, target in train_loader:
                loss = masked_mse(model(inputs), target)
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                average.lerp_(loss.detach(), 0.05)
                step += 1
                if step % 90 == 0:
                    print(f"step {step}: mse {average.item():.4f}")
            print(f"error after 30 minutes: {evaluate(model, valid_loader):.2f} mg/dl")


if __name__ == "__main__":
    main()
