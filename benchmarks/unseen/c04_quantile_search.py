"""Searches the quantile and the smoothing of a demand forecast; each trial trains a small network for a few steps."""
import argparse
import itertools
import json
import sys

import torch
from torch import nn


def demand(stores, days, seed):
    generator = torch.Generator().manual_seed(seed)
    week = torch.arange(days) % 7
    base = torch.rand(stores, 1, generator=generator) * 40 + 10
    season = 1 + 0.3 * torch.sin(2 * torch.pi * week / 7)
    noise = torch.randn(stores, days, generator=generator).abs()
    return (base * season + 4 * noise) / 50


def windows(series, history):
    x = series.unfold(1, history + 1, 3)
    x = x.reshape(-1, history + 1)
    return x[:, :history].contiguous(), x[:, history:].contiguous()


class Forecaster(nn.Module):
    def __init__(self, history, width):
        super().__init__()
        self.first = nn.Linear(history, width)
        self.second = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        h = nn.functional.gelu(self.first(x))
        h = h + nn.functional.gelu(self.second(h))
        return self.out(h) + x[:, -7:-6]


def make_objective(net, options):
    low, high = options["bounds"]

    def objective(x, y):
        error = y - net(x)
        pinball = torch.maximum(options["quantile"] * error, (options["quantile"] - 1) * error)
        smooth = torch.where(error.abs() < options["delta"], error**2 / (2 * options["delta"]), pinball)
        return smooth.clamp(low, high).mean()

    return objective


def run_trial(quantile, delta, data, args):
    torch.manual_seed(7)
    net = Forecaster(args.history, args.width)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    options = {"quantile": quantile, "delta": delta, "bounds": (0.0, 10.0)}
    x, y = data
    loss = None
    for step in range(args.steps):
        objective = torch.compile(make_objective(net, options), backend="aot_eager", fullgraph=False)
        rows = torch.arange(step * args.batch, (step + 1) * args.batch) % len(x)
        loss = objective(x[rows], y[rows])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        covered = (y <= net(x)).float().mean().item()
    return {"quantile": quantile, "delta": delta, "loss": loss.item(), "covered": covered}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--history", type=int, default=28)
    parser.add_argument("--width", type=int, default=32)
    args = parser.parse_args()
    data = windows(demand(30, 240, 0), args.history)
    results = []
    for quantile, delta in itertools.product((0.5, 0.8, 0.95), (0.02, 0.1)):
        results.append(run_trial(quantile, delta, data, args))
        json.dump(results[-1], sys.stdout)
        print()
    best = min(results, key=lambda r: abs(r["covered"] - r["quantile"]))
    print("best calibrated:", best["quantile"], best["delta"])


if __name__ == "__main__":
    main()
