"""Denoising diffusion of two-dimensional point clouds (spiral, rings, moons) with class labels.

A small residual MLP learns to predict the noise; samples are drawn with deterministic DDIM steps
and classifier-free guidance, and compared with fresh data by the sliced Wasserstein distance.
"""
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

KINDS, T, BATCH = 3, 200, 384


def points(kind, n, rng):
    u = rng.uniform(size=n)
    if kind == 0:                                   # spiral
        r, a = 0.3 + 1.5 * u, 4 * math.pi * u
        p = np.stack([r * np.cos(a), r * np.sin(a)], 1)
    elif kind == 1:                                 # two rings
        r, a = rng.choice([0.6, 1.6], n), 2 * math.pi * u
        p = np.stack([r * np.cos(a), r * np.sin(a)], 1)
    else:                                           # moons
        up, a = rng.integers(0, 2, n) * 2 - 1, math.pi * u
        p = np.stack([np.cos(a) - 0.5 * up, up * (np.sin(a) - 0.4)], 1) * 1.2
    return (p + rng.normal(0, 0.06, p.shape)).astype(np.float32)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, h, condition):
        return h + self.b(F.silu(self.a(h + condition)))


class Denoiser(nn.Module):
    def __init__(self, width=48, depth=2):
        super().__init__()
        self.inp, self.out = nn.Linear(2, width), nn.Linear(width, 2)
        self.label = nn.Embedding(KINDS + 1, width)
        self.time = nn.Linear(16, width)
        self.blocks = nn.ModuleList(Residual(width) for _ in range(depth))
        self.register_buffer("freq", 2.0 ** torch.arange(8) * math.pi / 2)

    def forward(self, x, t, kind):
        phase = t[:, None] * self.freq
        condition = self.time(torch.cat([phase.sin(), phase.cos()], 1)) + self.label(kind)
        h = self.inp(x)
        for block in self.blocks:
            h = block(h, condition)
        return self.out(F.silu(h))


def signal(t):
    """Square root of alpha-bar for a cosine schedule; t in [0, 1]."""
    return torch.cos((t * 0.98 + 0.005) * math.pi / 2)


class Sampler:
    def __init__(self, model, steps, guidance=1.2):
        self.model, self.steps, self.guidance = model, steps, guidance

    @torch.no_grad()
    def __call__(self, kind):
        n, device = len(kind), kind.device
        grid = torch.linspace(1, 0, self.steps + 1).tolist()
        empty = torch.full_like(kind, KINDS)
        x = torch.randn(n, 2, device=device)
        for now, after in zip(grid[:-1], grid[1:]):
            t = torch.full((n,), now, device=device)
            with_label, without = self.model(x, t, kind), self.model(x, t, empty)
            eps = without + self.guidance * (with_label - without)
            a, b = signal(t)[:, None], signal(t - (now - after))[:, None]
            clean = ((x - (1 - a * a).sqrt() * eps) / a).clamp(-3, 3)
            x = b * clean + (1 - b * b).sqrt() * eps
        torch_xla.sync()
        return x


def sliced_wasserstein(p, q, directions=64):
    d = F.normalize(torch.randn(2, directions, generator=torch.Generator().manual_seed(0)), dim=0)
    return ((p @ d).sort(0)[0] - (q @ d).sort(0)[0]).abs().mean().item()


def train(model, opt, x0, kind, steps, device):
    total = torch.zeros((), device=device)
    for step in range(steps):
        rows = torch.randint(len(x0), (BATCH,)).to(device)
        t = (torch.randint(1, T + 1, (BATCH,)) / T).to(device)
        drop = torch.rand(BATCH, device=device) < 0.15
        noise = torch.randn(BATCH, 2, device=device)
        label = torch.where(drop, torch.full_like(kind[rows], KINDS), kind[rows])
        a = signal(t)[:, None]
        guess = model(a * x0[rows] + (1 - a * a).sqrt() * noise, t, label)
        loss = F.mse_loss(guess, noise)
        opt.zero_grad()
        loss.backward()
        xm.optimizer_step(opt)
        total += loss.detach()
        torch_xla.sync()
    return total.item() / steps


def main():
    torch.manual_seed(8)
    rng = np.random.default_rng(8)
    device = torch_xla.device()
    x0 = torch.from_numpy(np.concatenate([points(k, 3000, rng) for k in range(KINDS)])).to(device)
    kind = torch.arange(KINDS).repeat_interleave(3000).to(device)
    model = Denoiser().to(device)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for round_no, ddim in enumerate((10, 20, 30)):
        loss = train(model, opt, x0, kind, 250, device)
        cloud = Sampler(model, ddim)(torch.arange(KINDS).repeat_interleave(300).to(device)).cpu()
        scores = [sliced_wasserstein(cloud[k * 300:(k + 1) * 300], torch.from_numpy(points(k, 300, rng)))
                  for k in range(KINDS)]
        print(f"round {round_no}: loss {loss:.4f}, {ddim} steps, distance "
              + " ".join(f"{s:.3f}" for s in scores), flush=True)


if __name__ == "__main__":
    main()
