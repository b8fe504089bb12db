"""Demand of tram stops, an encoder-decoder with scheduled sampling (Bengio et al. 2015), compiled with inductor."""
import argparse
import math
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_series(stops, hours, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(hours).float()
    daily = torch.sin(2 * math.pi * (t[None] / 24 + torch.rand(stops, 1, generator=g)))
    weekly = 0.4 * torch.cos(2 * math.pi * t[None] / 168)
    level = 1 + torch.rand(stops, 1, generator=g)
    return level * (1.5 + daily + weekly) + 0.1 * torch.randn(stops, hours, generator=g)


class Windows(torch.utils.data.Dataset):
    def __init__(self, series, past, horizon, stride=5):
        self.series, self.past, self.horizon = series, past, horizon
        last = series.shape[1] - past - horizon
        self.places = [(s, t) for s in range(series.shape[0]) for t in range(0, last, stride)]

    def __len__(self):
        return len(self.places)

    def __getitem__(self, i):
        stop, t = self.places[i]
        cut = self.series[stop, t:t + self.past + self.horizon]
        return cut[:self.past], cut[self.past:]


class Encoder(nn.Module):
    def __init__(self, past, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(past, width), nn.GELU(), nn.Linear(width, width), nn.Tanh())

    def forward(self, x):
        return self.net(x)


class Decoder(nn.Module):
    def __init__(self, width, horizon):
        super().__init__()
        self.horizon = horizon
        self.cell = nn.Linear(width + 1, width)
        self.out = nn.Linear(width, 1)
        self.teacher_ratio = 1.0

    def forward(self, state, last, target=None):
        value = last
        outputs = []
        for step in range(self.horizon):
            state = torch.tanh(self.cell(torch.cat([state, value], dim=-1)) + state)
            value = self.out(state)
            outputs.append(value)
            if target is not None and random.random() < self.teacher_ratio:
                value = target[:, step:step + 1]
        return torch.cat(outputs, dim=-1)


class Forecaster(nn.Module):
    def __init__(self, past, horizon, width):
        super().__init__()
        self.encoder = Encoder(past, width)
        self.decoder = Decoder(width, horizon)

    def forward(self, past, target=None):
        mean = past.mean(-1, keepdim=True)
        scale = past.std(-1, keepdim=True) + 1e-4
        x = (past - mean) / scale
        if target is not None:
            target = (target - mean) / scale
        out = self.decoder(self.encoder(x), x[:, -1:], target)
        return out * scale + mean


def inverse_sigmoid(step, k=120.0):
    return k / (k + math.exp(step / k))


def smape(prediction, target):
    return (2 * (prediction - target).abs() / (prediction.abs() + target.abs() + 1e-3)).mean()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--past", type=int, default=48)
    p.add_argument("--horizon", type=int, default=12)
    p.add_argument("--width", type=int, default=48)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch", type=int, default=32)
    args = p.parse_args()
    random.seed(0)
    torch.manual_seed(0)

    series = make_series(24, 24 * 28, seed=0)
    split = 24 * 21
    train = torch.utils.data.DataLoader(
        Windows(series[:, :split], args.past, args.horizon), args.batch, shuffle=True, drop_last=True)
    test = torch.utils.data.DataLoader(
        Windows(series[:, split:], args.past, args.horizon, stride=12), args.batch, drop_last=True)

    model = Forecaster(args.past, args.horizon, args.width)
    model.compile()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(args.epochs):
        start = time.perf_counter()
        model.train()
        running = torch.zeros(())
        for past, target in train:
            model.decoder.teacher_ratio = inverse_sigmoid(step)
            loss = F.huber_loss(model(past, target), target)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            running += loss.detach()
            step += 1
        model.eval()
        with torch.no_grad():
            scores = [smape(model(past), target) for past, target in test]
        print(
            f"epoch {epoch}: loss {running.item() / len(train):.4f}, smape {torch.stack(scores).mean().item():.4f}, "
            f"teacher {model.decoder.teacher_ratio:.2f}, {time.perf_counter() - start:.1f} s"
        )


if __name__ == "__main__":
    main()
