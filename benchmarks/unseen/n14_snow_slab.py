"""Explicit simulation of a snow slab on a weak layer: strain waves, damage, a skier's load. The time step is compiled."""
import contextlib
import time
from collections import Counter
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Slab:
    cells: int = 160
    dt: float = 0.08
    stiffness: float = 1.0
    friction: float = 0.35
    damping: float = 0.02
    toughness: float = 0.9
    slope: float = 0.28


CLOCK = Counter()


@contextlib.contextmanager
def stopwatch(part):
    began = time.perf_counter()
    try:
        yield
    finally:
        CLOCK[part] += time.perf_counter() - began


def shift(x, rows, columns):
    return torch.roll(x, (rows, columns), (0, 1))


@torch.compile
def advance(u, v, damage, cohesion, load, slab: Slab):
    """One explicit step: elastic forces from the neighbours, cohesion of the weak layer, damage, velocity, place."""
    with stopwatch("elastic"):
        bond_x = (1 - 0.5 * (damage + shift(damage, 0, 1))).clamp(min=0.05)
        bond_y = (1 - 0.5 * (damage + shift(damage, 1, 0))).clamp(min=0.05)
        stretch_x, stretch_y = u - shift(u, 0, 1), u - shift(u, 1, 0)
        pull_x = slab.stiffness * bond_x * torch.tanh(stretch_x)
        pull_y = slab.stiffness * bond_y * torch.tanh(stretch_y)
        elastic = shift(pull_x, 0, -1) - pull_x + shift(pull_y, -1, 0) - pull_y
    with stopwatch("weak layer"):
        held = cohesion * (1 - damage) * u
        sliding = slab.friction * damage * torch.tanh(v / 0.01)
        push = slab.slope + load
        acceleration = elastic - held - sliding + push - slab.damping * v
    with stopwatch("damage"):
        energy = 0.5 * (stretch_x.square() + stretch_y.square()) + 0.5 * cohesion * u.square()
        growth = torch.sigmoid((energy / slab.toughness - 1) * 8) * (1 - damage)
        damage = (damage + slab.dt * 0.5 * growth).clamp(max=1.0)
    v = v + slab.dt * acceleration
    u = u + slab.dt * v
    return u, v, damage


def weak_layer(slab, generator):
    """A correlated random field of cohesion: smoothed noise."""
    field = torch.randn(slab.cells, slab.cells, generator=generator)
    for _ in range(12):
        field = 0.2 * (field + shift(field, 0, 1) + shift(field, 0, -1) + shift(field, 1, 0) + shift(field, -1, 0))
    return (0.5 + 0.9 * field / field.std() * 0.2).clamp(min=0.1)


def skier(slab, step, total):
    """A Gaussian load that traverses the slope."""
    ys, xs = torch.meshgrid(torch.arange(slab.cells), torch.arange(slab.cells), indexing="ij")
    x = slab.cells * (0.2 + 0.6 * step / total)
    y = slab.cells * 0.4
    return 0.9 * torch.exp(-((xs - x) ** 2 + (ys - y) ** 2) / 60.0)


class Recorder:
    """Profile along the skier's track for the film, and the totals for the table."""

    def __init__(self):
        self.film, self.table = [], []

    def film_frame(self, u, damage):
        self.film.append([[round(a, 4) for a in row] for row in u[::2, ::2].tolist()])

    def row(self, step, u, damage):
        self.table.append((step, u.max().item(), damage.mean().item()))


def simulate(slab, steps, seed):
    generator = torch.Generator().manual_seed(seed)
    cohesion = weak_layer(slab, generator)
    u, v, damage = (torch.zeros(slab.cells, slab.cells) for _ in range(3))
    recorder = Recorder()
    with torch.inference_mode():
        for step in range(steps):
            if step % 40 == 0:
                load = skier(slab, step, steps)
            u, v, damage = advance(u, v, damage, cohesion, load, slab)
            recorder.film_frame(u, damage)
            if step % 200 == 0:
                recorder.row(step, u, damage)
    return recorder


def main():
    torch.manual_seed(0)
    slab = Slab()
    began = time.perf_counter()
    recorder = simulate(slab, steps=1200, seed=12)
    for step, furthest, broken in recorder.table:
        print(f"step {step:5d}: furthest {furthest:.3f}, damaged {broken:.3f}")
    spent = time.perf_counter() - began
    print(f"{spent:.1f} s; {len(recorder.film)} frames; " + ", ".join(f"{p} {s:.1f} s" for p, s in CLOCK.items()))


if __name__ == "__main__":
    main()
