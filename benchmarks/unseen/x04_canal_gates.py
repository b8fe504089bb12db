"""Predict which lock gate will jam within a week, from the telemetry of a canal (rare events, focal loss)."""

import argparse
import sys
import time
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla.distributed.parallel_loader import MpDeviceLoader


class Split(NamedTuple):
    features: torch.Tensor
    jammed: torch.Tensor


def simulate(days, gates, seed):
    rng = np.random.default_rng(seed)
    wear = np.cumsum(rng.gamma(0.4, 0.1, size=(days, gates)), axis=0) % 4.0
    silt = np.abs(np.cumsum(rng.normal(0, 0.2, size=(days, gates)), axis=0)) % 3.0
    level = np.sin(np.arange(days)[:, None] / 29.0) + rng.normal(0, 0.2, size=(days, gates))
    current = 1.0 + 0.5 * wear + 0.3 * silt + rng.normal(0, 0.3, size=(days, gates))
    strokes = rng.poisson(12, size=(days, gates)) / 12.0
    lags = [np.roll(current, lag, axis=0) for lag in range(1, 8)]
    columns = np.stack([wear, silt, level, current, strokes, *lags], axis=-1).reshape(days * gates, -1)
    odds = 1 / (1 + np.exp(-(1.3 * wear + silt - 5.5))).reshape(-1)
    jammed = rng.random(days * gates) < odds * 0.4
    return Split(torch.from_numpy(columns).float(), torch.from_numpy(jammed).float())


class GateNet(nn.Module):
    """An MLP whose normalisation averages over everything seen so far: the seasons make a moving average drift."""

    def __init__(self, features, width=32, depth=2):
        super().__init__()
        layers = []
        for index in range(depth):
            layers += [
                nn.Linear(features if index == 0 else width, width, bias=False),
                nn.BatchNorm1d(width, momentum=None),
                nn.SiLU(),
                nn.Dropout(0.1),
            ]
        self.body = nn.Sequential(*layers)
        self.out = nn.Linear(width, 1)

    def forward(self, features):
        return self.out(self.body(features)).squeeze(-1)


class FocalLoss(nn.Module):
    def __init__(self, positive_weight):
        super().__init__()
        self.positive_weight = positive_weight
        self.gamma = 0.0

    def forward(self, logits, targets):
        p = torch.sigmoid(logits)
        hit = torch.where(targets > 0.5, p, 1 - p).clamp(1e-5, 1 - 1e-5)
        weight = torch.where(targets > 0.5, self.positive_weight, 1.0)
        return (-weight * (1 - hit) ** self.gamma * hit.log()).mean()


def focus(epoch, epochs, final=2.0):
    """Begin with plain cross-entropy and sharpen over the first three quarters of the training."""
    return final * min(1.0, epoch / (0.75 * epochs))


@torch.no_grad()
def recall_at(model, split, device, share=0.1):
    model.eval()
    scores = model(split.features.to(device))
    torch_xla.sync()
    worst = scores.cpu().topk(int(share * len(scores))).indices
    model.train()
    return (split.jammed[worst].sum() / split.jammed.sum()).item()


def run(args):
    device = xm.xla_device()
    training, validation = simulate(360, 16, seed=1), simulate(60, 16, seed=2)
    mean, std = training.features.mean(0), training.features.std(0)
    training = Split((training.features - mean) / std, training.jammed)
    validation = Split((validation.features - mean) / std, validation.jammed)
    dataset = TensorDataset(training.features, training.jammed)
    loader = DataLoader(dataset, batch_size=args.batch, shuffle=True, drop_last=True)

    model = GateNet(training.features.shape[1]).to(device)
    criterion = FocalLoss(positive_weight=4.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    print(f"{len(dataset)} gate-days, {training.jammed.mean():.3f} jam", file=sys.stderr)

    for epoch in range(args.epochs):
        criterion.gamma = focus(epoch, args.epochs)
        total = torch.zeros((), device=device)
        for features, jammed in MpDeviceLoader(loader, device):
            optimizer.zero_grad()
            loss = criterion(model(features), jammed)
            loss.backward()
            xm.optimizer_step(optimizer)
            total += loss.detach()
        if (epoch + 1) % 4 == 0:
            print(
                f"epoch {epoch + 1:2d} gamma {criterion.gamma:.2f} loss {total.item() / len(loader):.4f} "
                f"recall@10% {recall_at(model, validation, device):.3f}"
            )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(3)
    started = time.perf_counter()
    run(args)
    print(f"done in {time.perf_counter() - started:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
