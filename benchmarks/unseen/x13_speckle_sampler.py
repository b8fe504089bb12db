"""Posterior samples of a star field behind speckle noise: annealed Langevin dynamics with a compiled step."""

import contextlib
import time
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class SamplerConfig:
    size: int = 20
    fields: int = 8
    levels: int = 10
    steps_per_level: int = 20
    sigma_max: float = 1.0
    sigma_min: float = 0.02
    step_size: float = 0.12
    seeds: tuple = (101, 102)
    noise: float = 0.1


@dataclass
class Timings:
    prior: float = 0.0
    data: float = 0.0
    calls: int = field(default=0)

    def report(self):
        return f"prior {self.prior:.2f} s, data {self.data:.2f} s"


def star_fields(cfg, generator):
    grid = torch.arange(cfg.size, dtype=torch.float32)
    fields = torch.zeros(cfg.fields, 1, cfg.size, cfg.size)
    for index in range(cfg.fields):
        for _ in range(6):
            y, x = torch.rand(2, generator=generator) * cfg.size
            flux = 0.5 + 1.5 * torch.rand(1, generator=generator)
            blob = torch.exp(-((grid[:, None] - y) ** 2 + (grid[None, :] - x) ** 2) / 1.2)
            fields[index, 0] += flux * blob
    return fields


def speckle_kernel(generator, width=7):
    phase = torch.randn(width, width, generator=generator)
    kernel = torch.fft.fft2(torch.exp(1j * phase)).abs() ** 2
    return (kernel / kernel.sum())[None, None].float()


class Prior(nn.Module):
    """A score network over noise levels, fitted by denoising."""

    def __init__(self, width=12):
        super().__init__()
        self.inside = nn.Conv2d(1, width, 3, padding=1)
        self.middle = nn.Conv2d(width, width, 3, padding=1)
        self.level = nn.Linear(1, width)
        self.outside = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x, sigma):
        h = F.silu(self.inside(x) + self.level(sigma.log().view(-1, 1))[:, :, None, None])
        h = F.silu(self.middle(h)) + h
        return -self.outside(h) / sigma


def fit_prior(prior, cfg, generator, steps=80):
    optimizer = torch.optim.Adam(prior.parameters(), lr=4e-3)
    for _ in range(steps):
        clean = star_fields(cfg, generator)
        sigma = torch.exp(torch.empty(cfg.fields, 1, 1, 1).uniform_(-3.9, 0.0, generator=generator))
        noise = torch.randn(clean.shape, generator=generator)
        target = -noise / sigma
        loss = (sigma * (prior(clean + sigma * noise, sigma) - target)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


class LangevinStep(nn.Module):
    def __init__(self, prior, kernel, cfg, generator):
        super().__init__()
        self.prior = prior
        self.register_buffer("kernel", kernel)
        self.noise = cfg.noise
        self.step_size = cfg.step_size
        self.generator = generator
        self.timings = Timings()

    def likelihood_score(self, x, observed, sigma):
        residual = observed - F.conv2d(x, self.kernel, padding=3)
        return F.conv2d(residual, self.kernel.flip(2, 3), padding=3) / (self.noise**2 + sigma**2)

    def forward(self, x, observed, sigma):
        started = time.perf_counter()
        score = self.prior(x, sigma)
        self.timings.prior += time.perf_counter() - started
        started = time.perf_counter()
        score = score + self.likelihood_score(x, observed, sigma)
        self.timings.data += time.perf_counter() - started
        step = self.step_size * sigma**2
        noise = torch.randn(x.shape, generator=self.generator)
        return x + step * score + (2 * step).sqrt() * 0.5 * noise


def sample(step, observed, cfg):
    sigmas = torch.logspace(0, torch.log10(torch.tensor(cfg.sigma_min / cfg.sigma_max)).item(), cfg.levels) * cfg.sigma_max
    x = torch.randn(observed.shape, generator=step.generator) * cfg.sigma_max
    for sigma in sigmas:
        for _ in range(cfg.steps_per_level):
            x = step(x, observed, sigma.view(1, 1, 1, 1))
    return x


@contextlib.contextmanager
def stopwatch(label):
    started = time.perf_counter()
    yield
    print(f"{label}: {time.perf_counter() - started:.1f} s")


def main():
    cfg = SamplerConfig()
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(31)
    prior = Prior()
    with stopwatch("prior"):
        print(f"denoising loss {fit_prior(prior, cfg, generator):.3f}")
    prior.requires_grad_(False)
    kernel = speckle_kernel(generator)
    truth = star_fields(cfg, generator)
    observed = F.conv2d(truth, kernel, padding=3) + cfg.noise * torch.randn(truth.shape, generator=generator)
    with stopwatch("sampling"), torch.no_grad():
        step = LangevinStep(prior, kernel, cfg, torch.Generator())
        step.compile(backend="aot_eager")
        draws = []
        for seed in cfg.seeds:
            step.generator.manual_seed(seed)
            draws.append(sample(step, observed, cfg))
    mean = torch.stack(draws).mean(0)
    print(f"error {F.mse_loss(mean, truth):.4f}, blurred {F.mse_loss(observed, truth):.4f}; {step.timings.report()}")


if __name__ == "__main__":
    main()
