"""Competing lichens on a boulder: a learned model of their cover from survey to survey.

Six species share the surface.  Surveys are between two and five seasons apart; the
model advances the cover season by season.  Growth near equilibrium must be stable, so the
spectral radius of the interaction matrix is kept below a bound.
"""
import random
import time
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

SPECIES = 6
SITES = 256


@dataclass
class Options:
    steps: int = 160
    batch: int = 32
    gaps: tuple = (2, 3, 4, 5)
    bound: float = 0.9
    lr: float = 5e-3
    report: int = 40
    history: list = field(default_factory=list)


class Boulders:
    """Surveys of synthetic sites; cover follows a Lotka-Volterra map with noise."""

    def __init__(self, opts, seed=0):
        gen = torch.Generator().manual_seed(seed)
        self.opts, self.gen = opts, gen
        self.rates = 0.3 + 0.2 * torch.rand(SPECIES, generator=gen)
        self.compete = torch.eye(SPECIES) + 0.3 * torch.rand(SPECIES, SPECIES, generator=gen)
        self.start = torch.rand(SITES, SPECIES, generator=gen) * 0.5
        self.random = random.Random(seed)

    def season(self, cover):
        growth = self.rates * (1 - cover @ self.compete.t())
        noise = 0.01 * torch.randn(cover.shape, generator=self.gen)
        return (cover * torch.exp(growth + noise)).clamp(1e-3, 1.5)

    def survey(self):
        gap = self.random.choice(self.opts.gaps)
        sites = torch.randint(0, SITES, (self.opts.batch,), generator=self.gen)
        before = after = self.start[sites]
        for _ in range(gap):
            after = self.season(after)
        return before, after, gap


class Interactions(nn.Module):
    def __init__(self):
        super().__init__()
        self.rates = nn.Parameter(torch.full((SPECIES,), 0.2))
        self.matrix = nn.Parameter(0.5 * torch.eye(SPECIES) + 0.05 * torch.randn(SPECIES, SPECIES))
        self.correction = nn.Sequential(nn.Linear(SPECIES, 24), nn.Tanh(), nn.Linear(24, SPECIES))

    def forward(self, cover, seasons):
        for _ in range(seasons):
            growth = self.rates - cover @ self.matrix.t() + 0.1 * self.correction(cover)
            cover = cover * torch.exp(growth.clamp(-2, 2))
        return cover

    def jacobian(self):
        return torch.eye(SPECIES, device=self.matrix.device) - self.rates[:, None] * self.matrix

    def spectral_radius(self):
        return torch.linalg.eigvals(self.jacobian()).abs().max()


def objective(model, before, after, gap, bound):
    predicted = model(before, gap)
    fit = F.mse_loss(torch.log(predicted + 1e-3), torch.log(after + 1e-3))
    return fit, F.relu(model.spectral_radius() - bound)


def train(model, boulders, opts, device):
    optimizer = torch.optim.Adam(model.parameters(), lr=opts.lr)
    total = torch.zeros((), device=device)
    began = time.perf_counter()
    for step in range(1, opts.steps + 1):
        before, after, gap = boulders.survey()
        fit, excess = objective(model, before.to(device), after.to(device), gap, opts.bound)
        loss = fit + 0.5 * excess
        optimizer.zero_grad()
        loss.backward()
        xm.optimizer_step(optimizer)
        total += loss.detach()
        torch_xla.sync()
        if step % opts.report == 0:
            opts.history.append(total.item() / opts.report)
            total.zero_()
            print(f"step {step}: loss {opts.history[-1]:.4f} ({time.perf_counter() - began:.1f} s)", flush=True)


def main():
    torch.manual_seed(0)
    opts = Options()
    device = torch_xla.device()
    model = Interactions().to(device)
    train(model, Boulders(opts), opts, device)
    with torch.no_grad():
        print(f"spectral radius {model.spectral_radius().item():.3f}")


if __name__ == "__main__":
    main()
