"""Langevin dynamics of a molten-salt droplet under a small learned pair potential."""
import math
from dataclasses import dataclass, field

import torch
import torch.nn as nn

CUTOFF, SKIN, CAPACITY = 2.6, 0.4, 40


@dataclass
class Droplet:
    positions: torch.Tensor
    velocities: torch.Tensor
    charges: torch.Tensor
    neighbours: torch.Tensor = None
    valid: torch.Tensor = None
    anchor: torch.Tensor = None
    history: list = field(default_factory=list)


def build_droplet(per_side=5, spacing=1.3):
    axis = torch.arange(per_side, dtype=torch.float32) * spacing
    grid = torch.cartesian_prod(axis, axis, axis)
    parity = (torch.round(grid / spacing).sum(1) % 2) * 2 - 1
    grid = grid - grid.mean(0)
    return Droplet(grid + 0.02 * torch.randn_like(grid), 0.1 * torch.randn_like(grid), parity)


def refresh_neighbours(droplet):
    """Verlet list of fixed capacity: atoms x CAPACITY, padded with the atom itself."""
    distance = torch.cdist(droplet.positions, droplet.positions)
    distance.fill_diagonal_(math.inf)
    near, index = distance.topk(CAPACITY, largest=False)
    droplet.valid = near < CUTOFF + SKIN
    own = torch.arange(len(distance))[:, None].expand_as(index)
    droplet.neighbours = torch.where(droplet.valid, index, own)
    droplet.anchor = droplet.positions.clone()


class PairPotential(nn.Module):
    def __init__(self, basis=12, width=32):
        super().__init__()
        self.register_buffer("centres", torch.linspace(0.6, CUTOFF, basis))
        self.embed = nn.Linear(basis + 1, width)
        self.hidden = nn.Linear(width, width)
        self.readout = nn.Linear(width, 1)

    def forward(self, positions, charges, neighbours, valid):
        offsets = positions[neighbours] - positions[:, None]
        r = (offsets.square().sum(-1) + 1e-6).sqrt()
        envelope = torch.where((r < CUTOFF) & valid, 0.5 * (1 + torch.cos(math.pi * r / CUTOFF)), 0.0)
        qq = charges[:, None] * charges[neighbours]
        features = torch.cat([torch.exp(-8 * (r[..., None] - self.centres) ** 2), qq[..., None]], -1)
        learned = self.readout(torch.tanh(self.hidden(torch.tanh(self.embed(features)))))[..., 0]
        core = (0.9 / r.clamp(min=0.4)) ** 9
        return (0.5 * envelope * (0.3 * learned + core + 0.8 * qq / r)).sum()


class Langevin:
    def __init__(self, potential, dt=0.004, friction=0.5, temperature=0.6):
        self.energy = torch.compile(potential, backend="aot_eager", fullgraph=True)
        self.dt, self.decay = dt, math.exp(-friction * dt)
        self.kick = math.sqrt(temperature * (1 - self.decay ** 2))

    def forces(self, droplet):
        x = droplet.positions.detach().requires_grad_(True)
        energy = self.energy(x, droplet.charges, droplet.neighbours, droplet.valid)
        (gradient,) = torch.autograd.grad(energy, x)
        return energy.detach(), -gradient

    def advance(self, droplet, force):
        with torch.no_grad():
            droplet.velocities += 0.5 * self.dt * force
            droplet.positions = droplet.positions + 0.5 * self.dt * droplet.velocities
            droplet.velocities = self.decay * droplet.velocities + self.kick * torch.randn_like(force)
            droplet.positions = droplet.positions + 0.5 * self.dt * droplet.velocities
        energy, force = self.forces(droplet)
        droplet.velocities += 0.5 * self.dt * force
        return energy, force


def drifted(droplet):
    return bool((droplet.positions - droplet.anchor).norm(dim=1).max() > SKIN / 2)


def radial_histogram(snapshots, bins=40):
    counts = torch.zeros(bins)
    for frame in snapshots:
        counts += torch.histc(torch.pdist(frame), bins=bins, min=0.5, max=6.0)
    return counts / len(snapshots)


def main():
    torch.manual_seed(7)
    droplet = build_droplet()
    refresh_neighbours(droplet)
    potential = PairPotential().requires_grad_(False)
    engine = Langevin(potential)
    _, force = engine.forces(droplet)
    rebuilds = 0
    for step in range(1, 3001):
        energy, force = engine.advance(droplet, force)
        if step % 20 == 0 and drifted(droplet):
            refresh_neighbours(droplet)
            rebuilds += 1
        if step % 50 == 0:
            droplet.history.append(droplet.positions.clone())
        if step % 500 == 0:
            kinetic = 0.5 * droplet.velocities.square().sum().item()
            print(f"step {step}: potential {energy.item():.2f} kinetic {kinetic:.2f} rebuilds {rebuilds}")
    g = radial_histogram(droplet.history[20:])
    print("first shell at", round(0.5 + 5.5 * g.argmax().item() / len(g), 2))


if __name__ == "__main__":
    main()
