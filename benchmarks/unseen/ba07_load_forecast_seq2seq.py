import torch_xla
import torch_xla.core.xla_model as xm

import argparse
import math
import random

import torch
import torch.nn as nn


def series(length, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(length).float()
    daily = torch.sin(2 * math.pi * t / 24) + 0.4 * torch.cos(2 * math.pi * t / 168)
    return daily + 0.1 * torch.randn(length, generator=g)


def windows(values, history, horizon, count, rng):
    starts = [rng.randrange(len(values) - history - horizon) for _ in range(count)]
    past = torch.stack([values[s:s + history] for s in starts])
    future = torch.stack([values[s + history:s + history + horizon] for s in starts])
    return past, future


class Encoder(nn.Module):
    def __init__(self, history, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(history, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())

    def forward(self, past):
        return self.net(past)


class Decoder(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.cell = nn.GRUCell(1, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, y, h):
        h = self.cell(y, h)
        return self.out(h), h


class Forecaster(nn.Module):
    def __init__(self, history, horizon, hidden):
        super().__init__()
        self.horizon = horizon
        self.teacher_ratio = 1.0
        self.encoder, self.decoder = Encoder(history, hidden), Decoder(hidden)

    def forward(self, past, future=None):
        h = self.encoder(past)
        y = past[:, -1:]
        outputs = []
        for t in range(self.horizon):
            guess, h = self.decoder(y, h)
            outputs.append(guess)
            guided = future is not None and random.random() < self.teacher_ratio
            y = future[:, t:t + 1] if guided else guess
        return torch.cat(outputs, 1)


class RatioDecay:
    def __init__(self, model, warm, rate):
        self.model, self.warm, self.rate = model, warm, rate

    def __call__(self, epoch):
        self.model.teacher_ratio = 1.0 if epoch < self.warm else max(0.0, 1.0 - self.rate * (epoch - self.warm + 1))


def fit_epoch(model, opt, values, args, rng, device):
    total = torch.zeros((), device=device)
    for _ in range(args.steps):
        past, future = windows(values, args.history, args.horizon, args.batch, rng)
        past, future = past.to(device), future.to(device)
        loss = (model(past, future) - future).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.detach()
        xm.mark_step()
    return total


def backtest(model, values, args, rng, device):
    model.eval()
    error = torch.zeros(args.horizon, device=device)
    with torch.no_grad():
        for _ in range(args.folds):
            past, future = windows(values, args.history, args.horizon, args.batch, rng)
            error += (model(past.to(device)) - future.to(device)).abs().mean(0)
            xm.mark_step()
    model.train()
    return (error / args.folds).cpu()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--history", type=int, default=48)
    parser.add_argument("--horizon", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--folds", type=int, default=8)
    args = parser.parse_args()
    random.seed(3)
    torch.manual_seed(3)
    rng = random.Random(9)
    device = torch.device("xla")
    values = series(4000, 1)
    model = Forecaster(args.history, args.horizon, args.hidden).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=3e-2)
    decay = RatioDecay(model, warm=6, rate=0.03)
    for epoch in range(args.epochs):
        decay(epoch)
        total = fit_epoch(model, opt, values, args, rng, device)
        if epoch % 3 == 2:
            error = backtest(model, values, args, rng, device)
            print(f"epoch {epoch} ratio {model.teacher_ratio:.2f} loss {total.item() / args.steps:.4f} mae {error.mean():.3f}")


if __name__ == "__main__":
    main()
