"""Learned interatomic potential for small crystals: energies and forces, logged through a run tracker."""
import math
import time
from dataclasses import dataclass, field

import torch
from torch import nn
import torch.nn.functional as F
import torch_xla

ATOMS, KINDS, CUTOFF = 12, 3, 2.4


@dataclass
class Tracker:
    """Collects the values of a run, and writes a line when a window of steps is full."""

    every: int = 5
    pending: list = field(default_factory=list)
    lines: list = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    def add(self, **values):
        self.pending.append(torch.stack(list(values.values())))
        if len(self.pending) == self.every:
            self.flush(list(values))

    def flush(self, names):
        window = torch.stack(self.pending).mean(0)
        torch_xla.sync()
        means = window.tolist()
        self.pending.clear()
        text = " ".join(f"{n} {v:.4f}" for n, v in zip(names, means))
        self.lines.append(text)
        print(f"[{time.perf_counter() - self.started:6.1f} s] {text}")


def lennard_jones(pos, kinds):
    """Reference energies and forces, as a density functional code would deliver them."""
    pos = pos.clone().requires_grad_(True)
    size = 0.8 + 0.1 * kinds.float()
    sigma = 0.5 * (size[:, :, None] + size[:, None])
    d = (pos[:, :, None] - pos[:, None]).square().sum(-1) + 10 * torch.eye(ATOMS)
    ratio = (sigma.square() / d.clamp(min=0.35)) ** 3
    energy = 2 * (ratio.square() - ratio).sum((1, 2))
    forces = -torch.autograd.grad(energy.sum(), pos)[0]
    return energy.detach(), forces


def crystals(n, seed):
    g = torch.Generator().manual_seed(seed)
    grid = torch.stack(torch.meshgrid(torch.arange(3), torch.arange(2), torch.arange(2), indexing="ij"), -1).view(-1, 3)
    pos = 1.05 * grid.float() + 0.08 * torch.randn(n, ATOMS, 3, generator=g)
    kinds = torch.randint(0, KINDS, (n, ATOMS), generator=g)
    energy, forces = lennard_jones(pos, kinds)
    return pos, kinds, (energy - energy.mean()) / energy.std(), forces / energy.std()


class Potential(nn.Module):
    def __init__(self, dim=24, radial=12, layers=1):
        super().__init__()
        self.kind = nn.Embedding(KINDS, dim)
        self.register_buffer("centres", torch.linspace(0.5, CUTOFF, radial))
        self.register_buffer("self_loop", torch.eye(ATOMS))
        self.filters = nn.ModuleList(nn.Sequential(nn.Linear(radial, dim), nn.Tanh(), nn.Linear(dim, dim)) for _ in range(layers))
        self.updates = nn.ModuleList(nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim)) for _ in range(layers))
        self.energy = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, 1))
        self.pull = nn.Sequential(nn.Linear(radial, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, pos, kinds):
        diff = pos[:, :, None] - pos[:, None]
        dist = (diff.square().sum(-1) + self.self_loop).sqrt()
        envelope = 0.5 * (torch.cos(math.pi * dist.clamp(max=CUTOFF) / CUTOFF) + 1) * (1 - self.self_loop)
        basis = torch.exp(-8 * (dist[..., None] - self.centres).square())
        h = self.kind(kinds)
        for mix, update in zip(self.filters, self.updates):
            weight = mix(basis) * envelope[..., None]
            h = h + update((weight * h[:, None]).sum(2))
        strength = (self.pull(basis) * (h[:, None] + h[:, :, None])).sum(-1) * envelope
        forces = (strength[..., None] * diff / dist[..., None]).sum(2)
        return self.energy(h).sum((1, 2)), forces


class Fitter:
    def __init__(self, device, tracker, force_weight=0.5):
        self.device, self.tracker, self.force_weight = device, tracker, force_weight
        self.model = Potential().to(device)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=2e-3)

    def losses(self, pos, kinds, energy, forces):
        predicted, pull = self.model(pos, kinds)
        return (predicted - energy).square().mean(), F.smooth_l1_loss(pull, forces)

    def step(self, batch):
        e, f = self.losses(*(t.to(self.device) for t in batch))
        self.opt.zero_grad()
        (e + self.force_weight * f).backward()
        self.opt.step()
        self.tracker.add(energy=e.detach(), force=f.detach())


def main(epochs=2, batch=16):
    torch.manual_seed(4)
    data = crystals(320, seed=4)
    fitter = Fitter(torch_xla.device(), Tracker())
    for _ in range(epochs):
        order = torch.randperm(320)
        for rows in order.split(batch):
            fitter.step([t[rows] for t in data])
    print(f"best window: {min(fitter.tracker.lines)}")


if __name__ == "__main__":
    main()
