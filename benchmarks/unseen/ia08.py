"""Tracer in a rotating shallow-water basin with a moving storm; spectra and gauges, PyTorch/XLA."""
import math
import time
from dataclasses import dataclass, field

import torch
import torch_xla


@dataclass
class Basin:
    n: int = 192
    dx: float = 5e3
    depth: float = 200.0
    gravity: float = 9.81
    coriolis: float = 1e-4
    drag: float = 2e-6
    diffusivity: float = 400.0
    cfl: float = 0.35
    gauges: list = field(default_factory=lambda: [(40, 40), (96, 150), (150, 60)])


def ddx(a):
    return 0.5 * (torch.roll(a, -1, 1) - torch.roll(a, 1, 1))


def ddy(a):
    return 0.5 * (torch.roll(a, -1, 0) - torch.roll(a, 1, 0))


def laplacian(a):
    return torch.roll(a, 1, 0) + torch.roll(a, -1, 0) + torch.roll(a, 1, 1) + torch.roll(a, -1, 1) - 4 * a


class ShallowWater:
    def __init__(self, cfg, device):
        self.cfg, self.device = cfg, device
        n = cfg.n
        y, x = torch.meshgrid(torch.arange(n, device=device), torch.arange(n, device=device), indexing="ij")
        self.h = 0.5 * torch.exp(-((x - n / 2) ** 2 + (y - n / 2) ** 2) / 150.0)
        self.u = torch.zeros(n, n, device=device)
        self.v = torch.zeros(n, n, device=device)
        self.tracer = (torch.sin(x * 0.2) > 0).float()
        self.patch = torch.exp(-(torch.arange(-8, 9, device=device)[:, None] ** 2 + torch.arange(-8, 9, device=device)[None] ** 2) / 18.0)
        self.time = 0.0

    def time_step(self):
        """Largest stable step for the present state."""
        c = self.cfg
        speed = (self.u.abs() + self.v.abs()).max() + torch.sqrt(c.gravity * (c.depth + self.h.max()))
        return c.cfl * c.dx / speed.item()

    def storm_position(self):
        """The storm circles the basin about once in seventy hours."""
        phase = self.time / 40000.0
        n = self.cfg.n
        return int(n / 2 + n / 4 * math.cos(phase)), int(n / 2 + n / 4 * math.sin(phase))

    def force(self, dt):
        cy, cx = self.storm_position()
        self.h[cy - 8 : cy + 9, cx - 8 : cx + 9] -= 2e-4 * dt * self.patch
        self.u[cy - 8 : cy + 9, cx - 8 : cx + 9] += 1e-5 * dt * self.patch

    def step(self):
        c = self.cfg
        dt = self.time_step()
        self.force(dt)
        r = dt / c.dx
        u, v, h = self.u, self.v, self.h
        total = c.depth + h
        self.h = h - r * (ddx(total * u) + ddy(total * v)) + 0.02 * laplacian(h)
        self.u = u + dt * (c.coriolis * v - c.drag * u) - r * (c.gravity * ddx(self.h) + u * ddx(u) + v * ddy(u)) + 0.02 * laplacian(u)
        self.v = v - dt * (c.coriolis * u + c.drag * v) - r * (c.gravity * ddy(self.h) + u * ddx(v) + v * ddy(v)) + 0.02 * laplacian(v)
        k = c.diffusivity * dt / c.dx**2
        self.tracer = self.tracer - r * (self.u * ddx(self.tracer) + self.v * ddy(self.tracer)) + (k + 0.01) * laplacian(self.tracer)
        self.time += dt
        torch_xla.sync()


def diagnostics(sim):
    """A line of numbers every so often; one read for all of them."""
    c = sim.cfg
    kinetic = 0.5 * c.depth * (sim.u**2 + sim.v**2).mean()
    potential = 0.5 * c.gravity * (sim.h**2).mean()
    spectrum = torch.fft.rfft(sim.h, dim=1).abs().mean(0)
    scale = (spectrum * torch.arange(len(spectrum), device=sim.device)).sum() / spectrum.sum()
    gauges = torch.stack([sim.h[y, x] for y, x in c.gauges])
    row = torch.cat([torch.stack([kinetic, potential, sim.h.mean(), sim.tracer.std(), scale]), gauges])
    return row.cpu().tolist()


def main(steps=320, every=80):
    cfg = Basin()
    device = torch_xla.device()
    sim = ShallowWater(cfg, device)
    torch_xla.sync()
    start = time.time()
    print("  step   hours  kinetic potential  mean h  tracer sd  wavenumber  gauges")
    for k in range(1, steps + 1):
        sim.step()
        if k % every == 0:
            ke, pe, mean, sd, scale, *gauges = diagnostics(sim)
            marks = " ".join(f"{g:7.4f}" for g in gauges)
            print(f"{k:6d} {sim.time / 3600:7.2f} {ke:8.4f} {pe:9.5f} {mean:7.4f} {sd:10.4f} {scale:11.2f}  {marks}")
    print(f"{steps} steps in {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
