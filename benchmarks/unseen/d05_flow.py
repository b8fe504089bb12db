"""A normalizing flow (affine couplings with actnorm) on two-dimensional rings; samples and their score at the end."""
import argparse
import math

import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, TensorDataset


def rings(n):
    radius = 1 + torch.randint(0, 3, (n,)) + 0.08 * torch.randn(n)
    angle = 2 * math.pi * torch.rand(n)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1)


class ActNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.shift, self.log_scale = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.zeros(dim))
        self.ready = False

    def forward(self, x):
        if not self.ready:
            with torch.no_grad():
                self.shift.copy_(-x.mean(0))
                self.log_scale.copy_(-x.std(0).log())
            self.ready = True
        return (x + self.shift) * self.log_scale.exp(), self.log_scale.sum()

    def inverse(self, y):
        return y * (-self.log_scale).exp() - self.shift


class Coupling(nn.Module):
    def __init__(self, hidden, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 2))

    def split(self, x):
        a, b = x[:, :1], x[:, 1:]
        return (b, a) if self.flip else (a, b)

    def join(self, a, b):
        return torch.cat([b, a] if self.flip else [a, b], 1)

    def forward(self, x):
        a, b = self.split(x)
        scale, shift = self.net(a).chunk(2, 1)
        scale = 2 * torch.tanh(scale / 2)
        return self.join(a, b * scale.exp() + shift), scale.squeeze(1)

    def inverse(self, y):
        a, b = self.split(y)
        scale, shift = self.net(a).chunk(2, 1)
        scale = 2 * torch.tanh(scale / 2)
        return self.join(a, (b - shift) * (-scale).exp())


class Flow(nn.Module):
    def __init__(self, couplings=4, hidden=32):
        super().__init__()
        self.parts = nn.ModuleList()
        for i in range(couplings):
            self.parts += [ActNorm(2), Coupling(hidden, flip=bool(i % 2))]

    def log_prob(self, x):
        total = x.new_zeros(len(x))
        for part in self.parts:
            x, log_det = part(x)
            total = total + log_det
        return total - 0.5 * (x**2).sum(1) - math.log(2 * math.pi)

    @torch.no_grad()
    def sample(self, n, device, temperature):
        z = temperature * torch.randn(n, 2, device=device)
        for part in reversed(self.parts):
            z = part.inverse(z)
        return z


def report(step, loss, norm):
    print(f"step {step}: nll {loss.item():.3f}, gradient {norm.item():.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--log-every", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(1)
    device = torch_xla.device()
    loader = DataLoader(TensorDataset(rings(15 * args.batch_size + 100)), args.batch_size, shuffle=True, drop_last=True)
    held_out = rings(1000).to(device)
    flow = Flow().to(device)
    optimizer = torch.optim.Adam(flow.parameters(), lr=3e-3)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 20) * 0.99**s)
    step = 0
    for epoch in range(args.epochs):
        noise = 0.05 * 0.5**epoch
        for (x,) in pl.MpDeviceLoader(loader, device):
            x = x + noise * torch.randn_like(x)
            loss = -flow.log_prob(x).mean()
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
            optimizer.step()
            warmup.step()
            step += 1
            if step % args.log_every == 0:
                xm.add_step_closure(report, args=(step, loss.detach(), norm))
        with torch.no_grad():
            score = flow.log_prob(held_out).mean()
        torch_xla.sync()
        print(f"epoch {epoch}: held-out log-likelihood {score.item():.3f}")
    for temperature in (0.7, 0.85, 1.0):
        samples = flow.sample(500, device, temperature)
        radius = samples.norm(dim=1).cpu()
        print(f"temperature {temperature}: {((radius - radius.round()).abs() < 0.2).float().mean():.2f} of the samples near a ring")


if __name__ == "__main__":
    main()
