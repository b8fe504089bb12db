"""Fit the masses of a small planetary system to noisy orbit observations.

A leapfrog integrator is differentiated end to end: we know where six bodies
start and where they are seen later, and look for the (log) masses which explain it.
"""
import math
import time
from dataclasses import dataclass, field

import torch

torch.manual_seed(3)


@dataclass
class Config:
    bodies: int = 6
    systems: int = 32
    dt: float = 0.03
    steps: int = 36
    observe_every: int = 9
    softening: float = 0.05
    iterations: int = 40
    lr: float = 0.05
    noise: float = 1e-3
    masses: list = field(default_factory=lambda: [4.0, 0.3, 0.25, 0.2, 0.15, 0.1])


cfg = Config()


def initial_state(cfg):
    """Circular-ish orbits around a heavy body 0, one random phase per system."""
    radius = torch.linspace(1.0, 3.4, cfg.bodies - 1)
    phase = torch.rand(cfg.systems, cfg.bodies - 1) * 2 * math.pi
    pos = torch.zeros(cfg.systems, cfg.bodies, 3)
    vel = torch.zeros(cfg.systems, cfg.bodies, 3)
    pos[:, 1:, 0] = radius * torch.cos(phase)
    pos[:, 1:, 1] = radius * torch.sin(phase)
    speed = torch.sqrt(cfg.masses[0] / radius)
    vel[:, 1:, 0] = -speed * torch.sin(phase)
    vel[:, 1:, 1] = speed * torch.cos(phase)
    vel[:, 1:, 2] = 0.05 * torch.randn(cfg.systems, cfg.bodies - 1)
    return pos, vel


def accelerations(pos, mass):
    gap = pos.unsqueeze(2) - pos.unsqueeze(1)                # (S, B, B, 3)
    dist2 = (gap * gap).sum(-1) + cfg.softening ** 2
    inv3 = dist2.rsqrt() ** 3
    return -(mass.view(1, 1, -1, 1) * inv3.unsqueeze(-1) * gap).sum(2)


def leapfrog(pos, vel, mass):
    vel = vel + 0.5 * cfg.dt * accelerations(pos, mass)
    pos = pos + cfg.dt * vel
    vel = vel + 0.5 * cfg.dt * accelerations(pos, mass)
    return pos, vel


def energy(pos, vel, mass):
    kinetic = 0.5 * (mass.view(1, -1, 1) * vel * vel).sum((1, 2))
    gap = pos.unsqueeze(2) - pos.unsqueeze(1)
    dist = torch.sqrt((gap * gap).sum(-1) + cfg.softening ** 2)
    pair = mass.view(1, -1, 1) * mass.view(1, 1, -1) / dist
    potential = -torch.triu(pair, diagonal=1).sum((1, 2))
    return kinetic + potential


@torch.compile(backend="aot_eager")  # no C++ compiler on the cluster nodes
def simulate(pos, vel, mass):
    seen = []
    for step in range(cfg.steps):
        pos, vel = leapfrog(pos, vel, mass)
        if (step + 1) % cfg.observe_every == 0:
            seen.append(pos)
    return torch.stack(seen), pos, vel


def main():
    pos0, vel0 = initial_state(cfg)
    true_mass = torch.tensor(cfg.masses)
    with torch.no_grad():
        # the data: eager, once
        pos, vel, observed = pos0, vel0, []
        for step in range(cfg.steps):
            pos, vel = leapfrog(pos, vel, true_mass)
            if (step + 1) % cfg.observe_every == 0:
                observed.append(pos)
        observed = torch.stack(observed)
        drift = (energy(pos, vel, true_mass) - energy(pos0, vel0, true_mass)).abs().max()
        observed = observed + cfg.noise * torch.randn_like(observed)
    print(f"{cfg.systems} systems of {cfg.bodies} bodies, energy drift of the truth {drift:.2e}")

    log_mass = torch.log(torch.full((cfg.bodies,), 0.2))
    log_mass[0] = math.log(3.0)
    log_mass.requires_grad_()
    optimizer = torch.optim.Adam([log_mass], lr=cfg.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.iterations, eta_min=1e-3)

    began = time.perf_counter()
    for iteration in range(cfg.iterations):
        optimizer.zero_grad()
        predicted, _, _ = simulate(pos0, vel0, log_mass.exp())
        loss = torch.nn.functional.huber_loss(predicted, observed, delta=0.1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_([log_mass], 1.0)
        optimizer.step()
        schedule.step()
        if iteration % 10 == 0 or iteration == cfg.iterations - 1:
            print(f"iteration {iteration:3d}  loss {loss.item():.3e}  "
                  f"{time.perf_counter() - began:.1f} s")

    found = log_mass.detach().exp()
    for body, (a, b) in enumerate(zip(found.tolist(), true_mass.tolist())):
        print(f"body {body}: mass {a:.3f} (true {b:.3f})")


if __name__ == "__main__":
    main()
