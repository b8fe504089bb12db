"""Tsunami toy: linearised shallow-water equations with a rising sea floor, bottom friction and a sponge.

The update of one time step is compiled with inductor; gauges record the surface elevation.
"""
import math
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Basin:
    nx: int = 320
    ny: int = 320
    dx: float = 1000.0
    dt: float = 2.0
    gravity: float = 9.81
    friction: float = 0.0025
    rise_steps: int = 150
    sponge: int = 24


class ShallowWater(nn.Module):
    def __init__(self, basin: Basin):
        super().__init__()
        self.b = basin
        y, x = torch.meshgrid(torch.arange(basin.ny), torch.arange(basin.nx), indexing="ij")
        depth = 200.0 + 3800.0 * torch.sigmoid((x - 90.0) / 35.0)
        depth = depth - 900.0 * torch.exp(-((x - 230.0) ** 2 + (y - 120.0) ** 2) / 500.0)
        self.register_buffer("depth", depth)
        quake = torch.exp(-((x - 250.0) ** 2) / 120.0 - ((y - 170.0) ** 2) / 900.0)
        self.register_buffer("uplift", quake * 3.0)
        edge = torch.minimum(torch.minimum(x, basin.nx - 1 - x), torch.minimum(y, basin.ny - 1 - y))
        self.register_buffer("damp", 1.0 - 0.06 * torch.exp(-edge.float() / basin.sponge * 3.0))
        self.clock = 0

    def source(self):
        """Half-cosine rise of the sea floor."""
        phase = self.clock / self.b.rise_steps
        if phase >= 1.0:
            return torch.zeros_like(self.uplift)
        rate = 0.5 * math.pi * math.sin(math.pi * phase) / self.b.rise_steps
        return self.uplift * rate

    def forward(self, eta, u, v):
        b = self.b
        g = b.gravity * b.dt / b.dx
        column = (self.depth + eta).clamp_min(1.0)
        speed = torch.sqrt(u * u + v * v + 1e-12)
        drag = 1.0 / (1.0 + b.dt * b.friction * speed / column)
        un = (u - g * (torch.roll(eta, -1, 1) - eta)) * drag * self.damp
        vn = (v - g * (torch.roll(eta, -1, 0) - eta)) * drag * self.damp
        fx, fy = column * un, column * vn
        div = (fx - torch.roll(fx, 1, 1) + fy - torch.roll(fy, 1, 0)) / b.dx
        en = (eta - b.dt * div + self.source()) * self.damp
        return en, un, vn


class Gauges:
    def __init__(self, places):
        self.places = places
        self.rows = torch.tensor([p[0] for p in places.values()])
        self.cols = torch.tensor([p[1] for p in places.values()])
        self.series = []

    def read(self, eta):
        self.series.append(eta[self.rows, self.cols].clone())

    def table(self):
        all_ = torch.stack(self.series)
        for i, name in enumerate(self.places):
            trace = all_[:, i]
            peak = trace.abs().argmax().item()
            print(f"  gauge {name:8s} peak {trace[peak].item():+.4f} m at sample {peak}")


def energy(eta, u, v, basin, depth):
    kinetic = 0.5 * (depth * (u * u + v * v)).sum()
    potential = 0.5 * basin.gravity * (eta * eta).sum()
    return kinetic.item(), potential.item()


def main():
    torch.manual_seed(0)
    basin = Basin()
    model = ShallowWater(basin)
    step = torch.compile(model)
    eta = torch.zeros(basin.ny, basin.nx)
    u, v = torch.zeros_like(eta), torch.zeros_like(eta)
    gauges = Gauges({"harbour": (160, 60), "island": (120, 215), "cape": (60, 100), "buoy": (200, 280)})
    n_steps = 2500
    with torch.no_grad():
        for n in range(n_steps):
            model.clock = n
            eta, u, v = step(eta, u, v)
            if n % 20 == 0:
                gauges.read(eta)
            if n % 500 == 0:
                kin, pot = energy(eta, u, v, basin, model.depth)
                print(f"step {n:5d}  max |eta| {eta.abs().max().item():.4f}  kinetic {kin:.4g}  potential {pot:.4g}")
    gauges.table()


if __name__ == "__main__":
    main()
