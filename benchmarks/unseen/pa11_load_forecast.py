"""Multi-horizon load forecasting; the model and the optimizer step are both compiled."""
import argparse
import math
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F


class LoadSeries:
    """Hourly load with a daily and a weekly rhythm."""

    def __init__(self, hours=6000, zones=6, seed=0):
        g = torch.Generator().manual_seed(seed)
        t = torch.arange(hours).float()[:, None]
        phase = torch.rand(zones, generator=g) * 2 * math.pi
        day = torch.sin(2 * math.pi * t / 24 + phase)
        week = 0.5 * torch.cos(2 * math.pi * t / 168 + 2 * phase)
        self.values = day + week + 0.1 * torch.randn(hours, zones, generator=g)
        self.cut = int(0.85 * hours)

    def windows(self, split, batch, context, horizon, gen):
        low, high = (0, self.cut) if split == "train" else (self.cut, len(self.values))
        starts = torch.randint(low, high - context - horizon, (batch,), generator=gen)
        idx = starts[:, None] + torch.arange(context + horizon)[None]
        block = self.values[idx]
        return block[:, :context], block[:, context:]


class MixerLayer(nn.Module):
    def __init__(self, context, zones, width):
        super().__init__()
        self.time = nn.Sequential(nn.LayerNorm(context), nn.Linear(context, width), nn.ReLU(), nn.Linear(width, context))
        self.zone = nn.Sequential(nn.LayerNorm(zones), nn.Linear(zones, width), nn.ReLU(), nn.Linear(width, zones))

    def forward(self, x):
        x = x + self.time(x.transpose(1, 2)).transpose(1, 2)
        return x + self.zone(x)


class Forecaster(nn.Module):
    def __init__(self, context, horizon, zones, width=48, layers=2):
        super().__init__()
        self.layers = nn.ModuleList(MixerLayer(context, zones, width) for _ in range(layers))
        self.head = nn.Linear(context, horizon)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x.transpose(1, 2)).transpose(1, 2)


def pinball(pred, target, q=0.6):
    err = target - pred
    return torch.maximum(q * err, (q - 1) * err).mean()


class WarmupCosine:
    def __init__(self, optimizer, base, warmup, total):
        self.optimizer, self.base, self.warmup, self.total = optimizer, base, warmup, total
        self.last = 0

    def step(self):
        self.last += 1
        if self.last < self.warmup:
            scale = self.last / self.warmup
        else:
            scale = 0.5 * (1 + math.cos(math.pi * (self.last - self.warmup) / max(self.total - self.warmup, 1)))
        for group in self.optimizer.param_groups:
            group["lr"] = self.base * max(scale, 0.01)


class Trainer:
    def __init__(self, args):
        self.args = args
        self.data = LoadSeries()
        self.model = Forecaster(args.context, args.horizon, 6)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr, weight_decay=1e-4)
        self.schedule = WarmupCosine(self.optimizer, args.lr, args.steps // 10, args.steps)
        self.forward = torch.compile(self.model, backend="aot_eager")
        self.update = torch.compile(lambda: self.optimizer.step(), backend="aot_eager")
        self.recent = deque(maxlen=50)
        self.gen = torch.Generator().manual_seed(5)

    def train(self):
        for step in range(1, self.args.steps + 1):
            past, future = self.data.windows("train", self.args.batch, self.args.context, self.args.horizon, self.gen)
            loss = pinball(self.forward(past), future)
            self.optimizer.zero_grad()
            loss.backward()
            self.schedule.step()
            self.update()
            self.recent.append(loss.detach())
            if step % self.args.log_every == 0:
                lr = float(self.optimizer.param_groups[0]["lr"])
                print(f"step {step} loss {torch.stack(list(self.recent)).mean():.4f} lr {lr:.2e} valid {self.validate():.4f}")

    def validate(self):
        with torch.no_grad():
            past, future = self.data.windows("valid", 4 * self.args.batch, self.args.context, self.args.horizon, self.gen)
            return F.l1_loss(self.model(past), future).item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--context", type=int, default=48)
    parser.add_argument("--horizon", type=int, default=12)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--log-every", type=int, default=80)
    torch.manual_seed(0)
    Trainer(parser.parse_args()).train()
