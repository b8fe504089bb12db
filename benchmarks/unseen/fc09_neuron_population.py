"""Hodgkin-Huxley population with noise: fit of the injected current that gives a wanted firing rate.

Bisection on the current; every trial simulates the whole population for a stretch of time.
"""
import argparse

import torch
from torch import nn


class HodgkinHuxley(nn.Module):
    def __init__(self, cells, dt=0.02, noise=2.0, seed=0):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        self.dt, self.noise, self.cells = dt, noise, cells
        self.register_buffer("g_na", 120.0 * (1 + 0.05 * torch.randn(cells, generator=g)))
        self.register_buffer("g_k", 36.0 * (1 + 0.05 * torch.randn(cells, generator=g)))
        self.register_buffer("g_l", 0.3 * (1 + 0.05 * torch.randn(cells, generator=g)))

    def rest(self):
        v = torch.full((self.cells,), -65.0)
        return v, torch.full_like(v, 0.053), torch.full_like(v, 0.596), torch.full_like(v, 0.318)

    def rates(self, v):
        am = 0.1 * (v + 40.0) / (1 - torch.exp(-(v + 40.0) / 10.0) + 1e-7)
        bm = 4.0 * torch.exp(-(v + 65.0) / 18.0)
        ah = 0.07 * torch.exp(-(v + 65.0) / 20.0)
        bh = 1.0 / (1.0 + torch.exp(-(v + 35.0) / 10.0))
        an = 0.01 * (v + 55.0) / (1 - torch.exp(-(v + 55.0) / 10.0) + 1e-7)
        bn = 0.125 * torch.exp(-(v + 65.0) / 80.0)
        return am, bm, ah, bh, an, bn

    def forward(self, v, m, h, n, current, kick):
        """Exponential Euler for the gates, plain Euler for the membrane."""
        am, bm, ah, bh, an, bn = self.rates(v)
        m = am / (am + bm) + (m - am / (am + bm)) * torch.exp(-self.dt * (am + bm))
        h = ah / (ah + bh) + (h - ah / (ah + bh)) * torch.exp(-self.dt * (ah + bh))
        n = an / (an + bn) + (n - an / (an + bn)) * torch.exp(-self.dt * (an + bn))
        ionic = self.g_na * m**3 * h * (v - 50.0) + self.g_k * n**4 * (v + 77.0) + self.g_l * (v + 54.4)
        new = v + self.dt * (current - ionic) + kick
        spikes = (v < 0.0) & (new >= 0.0)
        return new, m, h, n, spikes

    def simulate(self, current, steps, generator):
        state = self.rest()
        count = torch.zeros(self.cells)
        first = torch.full((self.cells,), float("inf"))
        drive = torch.full((self.cells,), current)
        scale = self.noise * self.dt**0.5
        for block in range(0, steps, 250):
            kicks = scale * torch.randn(250, self.cells, generator=generator)
            for i, kick in enumerate(kicks):
                *state, spikes = self(*state, drive, kick)
                count += spikes
                if i % 25 == 24:
                    seen = torch.isinf(first) & (count > 0)
                    first[seen] = (block + i) * self.dt
        return count, first


def describe(current, count, first, seconds):
    rate = count / seconds
    latency = first[torch.isfinite(first)]
    middle = latency.median().item() if len(latency) else float("nan")
    silent = (count == 0).float().mean().item()
    print(f"I = {current:6.3f}  rate {rate.mean().item():6.2f} Hz  spread {rate.std().item():5.2f}"
          f"  silent {silent:.3f}  median latency {middle:.1f} ms")
    return rate.mean().item()


def bisect(population, wanted, steps, trials, generator):
    low, high = 0.0, 14.0
    seconds = steps * population.dt / 1000.0
    for _ in range(trials):
        current = 0.5 * (low + high)
        count, first = population.simulate(current, steps, generator)
        rate = describe(current, count, first, seconds)
        if rate < wanted:
            low = current
        else:
            high = current
    return 0.5 * (low + high)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--milliseconds", type=float, default=100.0)
    parser.add_argument("--wanted", type=float, default=55.0)
    parser.add_argument("--trials", type=int, default=8)
    args = parser.parse_args()
    generator = torch.Generator().manual_seed(1)
    population = torch.compile(HodgkinHuxley(args.cells))
    steps = int(args.milliseconds / population.dt)
    with torch.inference_mode():
        current = bisect(population, args.wanted, steps, args.trials, generator)
    print(f"current for {args.wanted:.0f} Hz: {current:.3f}")


if __name__ == "__main__":
    main()
