"""Forecasts electric load from histories of any length; the compiled model is told that the history's length varies."""
import argparse
import logging
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("load")


def make_history(days, gen):
    hours = torch.arange(days * 24, dtype=torch.float32)
    daily = torch.sin(2 * math.pi * hours / 24)
    weekly = 0.5 * torch.sin(2 * math.pi * hours / (24 * 7))
    return daily + weekly + 0.1 * torch.randn(len(hours), generator=gen)


def make_batch(rng, gen, rows):
    days = rng.randint(3, 14)
    series = torch.stack([make_history(days + 1, gen) for _ in range(rows)])
    return series[:, : days * 24].view(rows, days, 24), series[:, days * 24 :]


class LoadModel(nn.Module):
    """Each day is embedded; the forecast is made from the last day, the mean day and an attention over all days."""

    def __init__(self, width=24, horizon=24):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(24, width), nn.GELU(), nn.Linear(width, width))
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(3 * width, horizon)

    def forward(self, x):
        scale = x.abs().mean(dim=(1, 2), keepdim=True) + 1e-3
        h = self.embed(x / scale)
        scores = (self.query(h[:, -1:]) * self.key(h)).sum(-1, keepdim=True) / h.shape[-1] ** 0.5
        attended = (scores.softmax(dim=1) * h).sum(1)
        summary = torch.cat([h[:, -1], h.mean(1), attended], dim=1)
        return self.head(self.drop(summary)) * scale.squeeze(1)


@torch.no_grad()
def validate(compiled, model, held_out):
    model.eval()
    total = 0.0
    for x, y in held_out:
        torch._dynamo.mark_dynamic(x, 1)
        total += F.l1_loss(compiled(x), y).item()
    model.train()
    return total / len(held_out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--log-every", type=int, default=10)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    rng, gen = random.Random(0), torch.Generator().manual_seed(0)

    held_out = [make_batch(rng, gen, args.rows) for _ in range(3)]
    model = LoadModel()
    compiled = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 15, 0.5)
    for step in range(1, args.steps + 1):
        x, y = make_batch(rng, gen, args.rows)
        torch._dynamo.mark_dynamic(x, 1)
        loss = F.smooth_l1_loss(compiled(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % args.log_every == 0:
            log.info("step %d: loss %.3f, held out %.3f", step, loss.item(), validate(compiled, model, held_out))


if __name__ == "__main__":
    main()
