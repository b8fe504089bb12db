"""Forecast the pH of a sourdough from its log of temperature, rise and feedings (scheduled dropout, compiled)."""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn


def sourdough(count, hours, seed):
    generator = torch.Generator().manual_seed(seed)
    temperature = 24 + 4 * torch.randn(count, 1, generator=generator) + torch.randn(count, hours, generator=generator)
    feeding = (torch.rand(count, hours, generator=generator) < 0.08).float()
    acidity = torch.zeros(count)
    rise = torch.zeros(count)
    logged = []
    for hour in range(hours):
        growth = torch.exp((temperature[:, hour] - 27) / 12) * 0.09
        acidity = acidity + growth * (2.2 - acidity) - 0.6 * feeding[:, hour] * acidity
        rise = 0.85 * rise + growth * (1 - rise) + 0.1 * feeding[:, hour]
        logged.append(torch.stack([temperature[:, hour] / 30, feeding[:, hour], rise], -1))
    return torch.stack(logged, 1), 6.0 - acidity


class Block(nn.Module):
    def __init__(self, width, hours):
        super().__init__()
        self.norm_time = nn.LayerNorm(width)
        self.norm_channel = nn.LayerNorm(width)
        self.time = nn.Linear(hours, hours)
        self.gate = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        x = x + self.time(self.norm_time(x).transpose(1, 2)).transpose(1, 2)
        h = self.norm_channel(x)
        return x + self.out(F.silu(self.gate(h)) * torch.tanh(self.value(h)))


class CrumbNet(nn.Module):
    def __init__(self, hours, width=24, depth=3, drop=0.25):
        super().__init__()
        self.embed = nn.Linear(3, width)
        self.blocks = nn.ModuleList(Block(width, hours) for _ in range(depth))
        self.final_drop = drop
        self.drop = 0.0
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 1)

    def set_progress(self, progress):
        """Late dropout: none while the features form, all of it towards the end."""
        self.drop = self.final_drop * progress**2

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = x + F.dropout(block(x) - x, p=self.drop, training=self.training)
        return self.head(self.norm(x).mean(1)).squeeze(-1)


class Batches:
    def __init__(self, x, y, size, seed):
        self.x, self.y, self.size = x, y, size
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self):
        return len(self.x) // self.size

    def __iter__(self):
        order = torch.randperm(len(self.x), generator=self.generator)
        for at in range(len(self)):
            chosen = order[at * self.size : (at + 1) * self.size]
            yield self.x[chosen], self.y[chosen]


@torch.no_grad()
def validate(model, batches):
    model.eval()
    total = torch.zeros(())
    for x, y in batches:
        total += (model(x) - y).abs().mean()
    model.train()
    return float(total) / len(batches)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--hours", type=int, default=48)
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args()
    torch.manual_seed(1)
    training = Batches(*sourdough(1024, args.hours, 0), args.batch, seed=3)
    validation = Batches(*sourdough(256, args.hours, 9), args.batch, seed=4)

    model = CrumbNet(args.hours)
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    began = time.perf_counter()
    for epoch in range(args.epochs):
        model.set_progress(epoch / args.epochs)
        running = 0.0
        for x, y in training:
            loss = F.smooth_l1_loss(compiled(x), y, beta=0.1)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            running += loss.item()
        if epoch % 5 == 4:
            print(
                f"epoch {epoch + 1:2d}  loss {running / len(training):.4f}  "
                f"pH error {validate(compiled, validation):.4f}  {time.perf_counter() - began:.1f} s"
            )
    print(f"done in {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
