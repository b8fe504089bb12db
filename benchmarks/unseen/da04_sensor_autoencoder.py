"""Denoising autoencoder for sensor windows on an XLA device; outliers are dropped from each batch's loss."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla
import torch_xla.core.xla_model as xm


def synthetic(n, window, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(window)[None] / window
    freq = rng.uniform(1, 4, (n, 1))
    phase = rng.uniform(0, 2 * np.pi, (n, 1))
    x = np.sin(2 * np.pi * freq * t + phase) + 0.3 * np.sin(6 * np.pi * freq * t)
    bad = rng.random(n) < 0.06
    x[bad] += rng.normal(0, 3, (bad.sum(), window))
    return x.astype(np.float32), bad


class AutoEncoder(nn.Module):
    def __init__(self, window, code=10, width=96):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(window, width), nn.GELU(), nn.Linear(width, width), nn.GELU(),
                                    nn.Linear(width, code))
        self.decode = nn.Sequential(nn.Linear(code, width), nn.GELU(), nn.Linear(width, width), nn.GELU(),
                                    nn.Linear(width, window))

    def forward(self, x):
        return self.decode(self.encode(x))


def robust_loss(output, target, limit):
    """Mean error of the windows whose error is below the limit."""
    each = (output - target).pow(2).mean(1)
    return each[each < limit].mean()


class Ema:
    """A moving average of the weights for evaluation."""

    def __init__(self, model, decay=0.98):
        self.decay = decay
        self.shadow = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow, model.parameters()):
            s.mul_(self.decay).add_(p.detach(), alpha=1 - self.decay)

    @torch.no_grad()
    def swap(self, model):
        for s, p in zip(self.shadow, model.parameters()):
            old = p.detach().clone()
            p.copy_(s)
            s.copy_(old)


@torch.no_grad()
def scores(model, x, batch):
    """Reconstruction errors of all windows, on the host."""
    out = []
    for chunk in x.split(batch):
        out.append((model(chunk) - chunk).abs().mean(1))
        torch_xla.sync()
    return torch.cat(out).cpu().numpy()


def auc(score, label):
    order = score.argsort().argsort()
    pos = label.sum()
    return (order[label].sum() - pos * (pos - 1) / 2) / (pos * (len(label) - pos))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--window", type=int, default=64)
    p.add_argument("--limit", type=float, default=1.1)
    args = p.parse_args()
    torch.manual_seed(0)
    device = torch_xla.device()
    x, _ = synthetic(1536, args.window, 1)
    x_test, bad = synthetic(1024, args.window, 2)
    x = torch.from_numpy(x).to(device)
    x_test = torch.from_numpy(x_test).to(device)
    model = AutoEncoder(args.window).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    ema = Ema(model)
    steps = len(x) // args.batch
    for epoch in range(args.epochs):
        order = torch.randperm(len(x)).to(device)
        total = torch.zeros((), device=device)
        for i in range(steps):
            take = order.narrow(0, 0, args.batch)
            order = order.roll(-args.batch)
            batch = x.index_select(0, take)
            noisy = batch + 0.1 * torch.randn_like(batch)
            loss = robust_loss(model(noisy), batch, args.limit)
            optimizer.zero_grad()
            loss.backward()
            xm.optimizer_step(optimizer)
            ema.update(model)
            total += loss.detach()
            torch_xla.sync()
        ema.swap(model)
        error = scores(model, x_test, args.batch)
        ema.swap(model)
        print(f"epoch {epoch}: loss {total.item() / steps:.4f}, AUC of outliers {auc(error, bad):.3f}")


if __name__ == "__main__":
    main()
