"""Forecasting electricity load with a small causal transformer: teacher forcing, then a rollout of 12 hours."""
import argparse
import datetime
import logging
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

log = logging.getLogger("forecast")
CONTEXT, HORIZON = 72, 12
START = datetime.datetime(2021, 1, 1)
HOLIDAYS = {datetime.date(y, m, d) for y in (2021, 2022, 2023) for m, d in ((1, 1), (5, 1), (10, 3), (12, 25), (12, 26))}


def load_series(hours, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    load = 1 + 0.4 * np.sin(2 * np.pi * t / 24) + 0.2 * np.sin(2 * np.pi * t / 168) + 0.05 * rng.standard_normal(hours)
    return load.astype(np.float32)


def calendar(hour):
    when = START + datetime.timedelta(hours=int(hour))
    year = when.timetuple().tm_yday / 366
    to_holiday = min(abs((when.date() - h).days) for h in HOLIDAYS)
    return [
        math.sin(2 * math.pi * when.hour / 24),
        math.cos(2 * math.pi * when.hour / 24),
        math.sin(2 * math.pi * year),
        math.cos(2 * math.pi * year),
        float(when.weekday() >= 5),
        math.exp(-to_holiday),
    ]


class Windows:
    def __init__(self, series, length, seed):
        self.series, self.length, self.rng = series, length, np.random.default_rng(seed)

    def sample(self, n):
        starts = self.rng.integers(0, len(self.series) - self.length, n)
        load = np.stack([self.series[s : s + self.length] for s in starts])
        features = np.array([[calendar(s + i) for i in range(self.length)] for s in starts], dtype=np.float32)
        return torch.from_numpy(load), torch.from_numpy(features)


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class Forecaster(nn.Module):
    def __init__(self, dim=16, layers=1):
        super().__init__()
        self.embed = nn.Linear(7, dim)
        self.layers = nn.ModuleList([Layer(dim, 2) for _ in range(layers)])
        self.head = nn.Linear(dim, 2)

    def forward(self, load, features):
        x = self.embed(torch.cat([load.unsqueeze(-1), features], -1))
        for layer in self.layers:
            x = layer(x)
        mean, log_std = self.head(x).unbind(-1)
        return mean, log_std.clamp(-5, 2)


@torch.no_grad()
def rollout(model, load, features):
    window = load[:, :CONTEXT]
    predictions = []
    for h in range(HORIZON):
        mean, _ = model(window, features[:, h : h + CONTEXT])
        predictions.append(mean[:, -1])
        window = torch.cat([window[:, 1:], mean[:, -1:]], 1)
    return torch.stack(predictions, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--eval-every", type=int, default=30)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    device = torch_xla.device()
    series = load_series(24 * 500)
    train, test = Windows(series[: 24 * 400], CONTEXT + 1, 1), Windows(series[24 * 400 :], CONTEXT + HORIZON, 2)
    model = Forecaster().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=args.steps)
    test_load, test_features = (x.to(device) for x in test.sample(32))
    for step in range(1, args.steps + 1):
        load, features = (x.to(device) for x in train.sample(args.batch_size))
        mean, log_std = model(load[:, :-1], features[:, :-1])
        loss = (log_std + 0.5 * ((load[:, 1:] - mean) / log_std.exp()) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        torch_xla.sync()
        if step % args.eval_every == 0:
            model.eval()
            error = (rollout(model, test_load, test_features) - test_load[:, CONTEXT:]).abs().mean(0).cpu()
            model.train()
            log.info("step %d nll %.3f MAE +1h %.3f +12h %.3f", step, loss.item(), error[0], error[-1])


if __name__ == "__main__":
    main()
