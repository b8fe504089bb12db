"""Shape the rings of a Fresnel lens for a lighthouse by differentiable ray tracing (meridional plane only)."""
import math
import os
import time

import torch
import torch_xla
import torch_xla.core.xla_model as xm

RINGS = 24
RAYS = 64
GLASS = 1.52
FOCAL = 0.92  # metres from the lamp to the flat face
STEPS = int(os.environ.get("LENS_STEPS", 180))


class FresnelLens(torch.nn.Module):
    """A flat face towards the lamp, one facet angle and one curvature per ring on the other."""

    def __init__(self, rings, height=0.6):
        super().__init__()
        edges = torch.linspace(0.02, height, rings + 1)
        self.register_buffer("lower", edges[:-1])
        self.register_buffer("upper", edges[1:])
        self.angle = torch.nn.Parameter(0.3 * (self.lower + self.upper))
        self.bow = torch.nn.Parameter(torch.zeros(rings))

    def facet(self, y):
        inside = torch.sigmoid(400 * (y[:, None] - self.lower)) * torch.sigmoid(400 * (self.upper - y[:, None]))
        weight = inside / (inside.sum(1, keepdim=True) + 1e-6)
        middle = 0.5 * (self.lower + self.upper)
        slope = self.angle + self.bow * (y[:, None] - middle)
        return (weight * slope).sum(1)

    def forward(self, angles, offsets):
        y = torch.tan(angles) * FOCAL + offsets
        within = torch.asin(torch.sin(angles) / GLASS)
        normal = self.facet(y)
        bent = GLASS * torch.sin(within - normal)
        leaving = torch.asin(bent.clamp(-0.999, 0.999)) + normal
        return y, leaving


class Lamp:
    """An extended source: the filament has a height, so rays start a little above or below the axis."""

    def __init__(self, device, filament=0.012):
        self.device, self.filament = device, filament

    def rays(self, n):
        spread = math.atan(0.58 / FOCAL)
        angles = torch.rand(n, device=self.device) * spread
        offsets = (torch.rand(n, device=self.device) - 0.5) * self.filament
        return angles, offsets


def merit(lens, angles, offsets):
    _, leaving = lens(angles, offsets)
    parallel = (leaving**2).mean()
    smooth = (lens.angle[1:] - lens.angle[:-1]).pow(2).mean()
    return parallel + 0.02 * smooth + 1e-4 * (lens.bow**2).mean()


def beam_profile(lens, lamp, bins=9):
    with torch.no_grad():
        _, leaving = lens(*lamp.rays(1024))
        edges = torch.linspace(-0.2, 0.2, bins + 1, device=leaving.device)
        hits = (leaving[:, None] >= edges[:-1]) & (leaving[:, None] < edges[1:])
        return hits.float().mean(0).cpu()


def align(lens, steps=30):
    """Starts every facet near the angle that thin prisms would need."""
    optimizer = torch.optim.Adam([lens.angle], lr=0.02)
    wanted = torch.atan(0.5 * (lens.lower + lens.upper) / FOCAL) / (GLASS - 1)
    for _ in range(steps):
        optimizer.zero_grad()
        (lens.angle - wanted.clamp(max=0.8)).pow(2).mean().backward()
        optimizer.step()
        torch_xla.sync()


def design(lens, lamp, steps, print_every=60):
    optimizer = torch.optim.Adam(lens.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.997)
    best, best_angle = None, None
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        with torch.autograd.detect_anomaly():  # asin near the edge
            value = merit(lens, *lamp.rays(RAYS))
            value.backward()
        optimizer.step()
        schedule.step()
        current = value.detach()
        best = current if best is None else min(best, current)
        torch_xla.sync()
        if step % print_every == 0:
            xm.master_print(f"{step:5d}  merit {current.item():.6f}  best {best.item():.6f}")
    return best


def main():
    torch.manual_seed(1)
    device = xm.xla_device()
    lens, lamp = FresnelLens(RINGS).to(device), Lamp(device)
    began = time.perf_counter()
    align(lens)
    before = beam_profile(lens, lamp)
    best = design(lens, lamp, STEPS)
    after = beam_profile(lens, lamp)
    print("beam before:", " ".join(f"{v:.2f}" for v in before.tolist()))
    print("beam after: ", " ".join(f"{v:.2f}" for v in after.tolist()))
    print("facets (degrees):", [round(math.degrees(a), 1) for a in lens.angle.detach().cpu().tolist()[::6]])
    print(f"best merit {best.item():.6f} after {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
