"""Learns aim points for a heliostat field, so that the receiver is heated evenly and its panels stay below their limit.

Penalties are re-balanced after each round by how far the panels were from their limits (a simple dual ascent).
"""
import time

import torch
from torch import nn

MIRRORS, PANELS = 40, 8


class Field:
    def __init__(self, seed):
        g = torch.Generator().manual_seed(seed)
        self.position = torch.randn(MIRRORS, 2, generator=g)
        self.spread = 0.4 + 0.3 * torch.rand(MIRRORS, 1, generator=g)
        self.panel = torch.linspace(-2, 2, PANELS)
        self.generator = g

    def sun(self, n):
        hour = torch.rand(n, 1, generator=self.generator) * 2 - 1
        clouds = (torch.rand(n, MIRRORS, generator=self.generator) > 0.15).float()
        return torch.cat([hour, hour ** 2, 1 - hour.abs()], dim=1), clouds

    def flux(self, aim, clouds, power):
        hit = torch.exp(-0.5 * ((self.panel - aim.unsqueeze(-1)) / self.spread) ** 2)
        return (hit * (clouds * power).unsqueeze(-1)).sum(dim=1) / 10


class AimPolicy(nn.Module):
    def __init__(self, field, width=32):
        super().__init__()
        self.register_buffer("position", field.position)
        self.sun = nn.Sequential(nn.Linear(3, width), nn.Tanh())
        self.mirror = nn.Sequential(nn.Linear(2, width), nn.Tanh())
        self.out = nn.Sequential(nn.Linear(2 * width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, sun):
        s = self.sun(sun).unsqueeze(1).expand(-1, MIRRORS, -1)
        m = self.mirror(self.position).unsqueeze(0).expand(len(sun), -1, -1)
        return 2.5 * torch.tanh(self.out(torch.cat([s, m], dim=-1)).squeeze(-1))


def make_objective(field, policy, evenness):
    """The objective of one round: spilled flux, unevenness and the overload of each panel."""

    def overload(flux, prices):
        return (torch.relu(flux - 1.4) * torch.tensor(prices)).sum(dim=1)

    @torch.compile(backend="aot_eager")
    def objective(sun, clouds, prices):
        flux = field.flux(policy(sun), clouds, 0.6 + 0.4 * sun[:, 2:])
        caught = flux.sum(dim=1)
        loss = -caught + evenness * flux.var(dim=1) + overload(flux, prices)
        return loss.mean(), flux.detach().amax(dim=0)

    return objective


class DualAscent:
    def __init__(self, rate=0.5, limit=1.5):
        self.prices = [0.1] * PANELS
        self.rate, self.limit = rate, limit

    def update(self, peaks):
        self.prices = [max(0.0, p + self.rate * (peak - self.limit)) for p, peak in zip(self.prices, peaks)]


def train_round(objective, field, optimizer, dual, steps, batch):
    peaks = torch.zeros(PANELS)
    total = torch.zeros(())
    for step in range(steps):
        sun, clouds = field.sun(batch)
        loss, peak = objective(sun, clouds, dual.prices)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        peaks = torch.maximum(peaks, peak)
        total += loss.detach()
        if (step + 1) % 20 == 0:
            dual.update(peaks.tolist())
            peaks.zero_()
    return total.item() / steps


@torch.no_grad()
def assess(policy, field):
    sun, clouds = field.sun(256)
    flux = field.flux(policy(sun), clouds, 0.6 + 0.4 * sun[:, 2:])
    return flux.sum(dim=1).mean().item(), (flux > 1.5).float().mean().item()


def main():
    torch.manual_seed(6)
    field = Field(seed=6)
    policy = AimPolicy(field)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    dual = DualAscent()
    for round_index in range(8):
        began = time.perf_counter()
        evenness = 0.2 * 1.5 ** min(round_index, 4)
        objective = make_objective(field, policy, evenness)
        loss = train_round(objective, field, optimizer, dual, steps=60, batch=32)
        caught, hot = assess(policy, field)
        print(f"round {round_index}: loss {loss:+.3f}, caught {caught:.2f}, overheated {hot:.1%}, "
              f"dearest panel {max(dual.prices):.2f} ({time.perf_counter() - began:.1f} s)")


if __name__ == "__main__":
    main()
