"""Lennard-Jones fluid in the NVT ensemble (Langevin), with Verlet neighbour lists.

A small argon-like box is equilibrated, then sampled; at the end we print the
mean potential energy, the pressure and the first peak of g(r).
"""
import argparse
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np


@dataclass
class Params:
    n_side: int = 8
    density: float = 0.75
    temperature: float = 1.1
    dt: float = 0.004
    gamma: float = 1.0
    r_cut: float = 2.5
    skin: float = 0.35
    rebuild_every: int = 20

    @property
    def n(self):
        return self.n_side ** 3

    @property
    def box(self):
        return (self.n / self.density) ** (1 / 3)


def minimum_image(d, box):
    return d - box * jnp.round(d / box)


def lattice(p):
    g = (np.arange(p.n_side) + 0.5) * p.box / p.n_side
    return np.stack(np.meshgrid(g, g, g), -1).reshape(-1, 3).astype(np.float32)


def neighbour_pairs(pos, p):
    """All pairs (i < j) closer than the cut-off plus the skin."""
    pos = np.asarray(pos)
    d = pos[:, None] - pos[None]
    d -= p.box * np.round(d / p.box)
    r2 = (d ** 2).sum(-1)
    i, j = np.nonzero(np.triu(r2 < (p.r_cut + p.skin) ** 2, 1))
    return jnp.asarray(np.stack([i, j], 1), jnp.int32)


def pair_terms(pos, pairs, box, r_cut):
    d = minimum_image(pos[pairs[:, 0]] - pos[pairs[:, 1]], box)
    r2 = jnp.maximum((d ** 2).sum(-1), 1e-6)
    inside = r2 < r_cut ** 2
    s6 = 1.0 / r2 ** 3
    energy = jnp.where(inside, 4 * (s6 ** 2 - s6), 0.0)
    virial = jnp.where(inside, 24 * (2 * s6 ** 2 - s6), 0.0)
    force = (virial / r2)[:, None] * d
    return energy, virial, force


def forces(pos, pairs, box, r_cut):
    energy, virial, f = pair_terms(pos, pairs, box, r_cut)
    total = jnp.zeros_like(pos).at[pairs[:, 0]].add(f).at[pairs[:, 1]].add(-f)
    return total, energy.sum(), virial.sum()


@partial(jax.jit, static_argnames=("steps", "dt", "gamma", "kT", "box", "r_cut"))
def advance(pos, vel, pairs, key, *, steps, dt, gamma, kT, box, r_cut):
    c1 = np.exp(-gamma * dt)
    c2 = np.sqrt(kT * (1 - c1 ** 2))

    def step(carry, k):
        pos, vel, f = carry
        vel = vel + 0.5 * dt * f
        pos = pos + 0.5 * dt * vel
        vel = c1 * vel + c2 * jax.random.normal(k, vel.shape)
        pos = (pos + 0.5 * dt * vel) % box
        f, e, w = forces(pos, pairs, box, r_cut)
        vel = vel + 0.5 * dt * f
        return (pos, vel, f), (e, w, (vel ** 2).sum())

    f0, _, _ = forces(pos, pairs, box, r_cut)
    (pos, vel, _), trace = jax.lax.scan(step, (pos, vel, f0), jax.random.split(key, steps))
    return pos, vel, jax.tree.map(jnp.mean, trace)


def radial_distribution(pos, p, bins=80):
    d = pos[:, None] - pos[None]
    d = minimum_image(d, p.box)
    r = np.sqrt(np.asarray((d ** 2).sum(-1)))[np.triu_indices(p.n, 1)]
    hist, edges = np.histogram(r, bins=bins, range=(0.5, p.box / 2))
    shell = 4 / 3 * np.pi * (edges[1:] ** 3 - edges[:-1] ** 3)
    return 0.5 * (edges[1:] + edges[:-1]), hist / (shell * p.density * p.n / 2)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--blocks", type=int, default=12)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    p = Params()
    key = jax.random.key(args.seed)
    key, sub = jax.random.split(key)
    pos = jnp.asarray(lattice(p))
    vel = jnp.sqrt(p.temperature) * jax.random.normal(sub, pos.shape)
    energies, pressures = [], []
    for block in range(args.blocks):
        pairs = neighbour_pairs(pos, p)
        key, sub = jax.random.split(key)
        pos, vel, (e, w, k2) = advance(
            pos, vel, pairs, sub, steps=p.rebuild_every, dt=p.dt, gamma=p.gamma,
            kT=p.temperature, box=p.box, r_cut=p.r_cut)
        energies.append(e / p.n)
        pressures.append(p.density * k2 / (3 * p.n) + w / (3 * p.box ** 3))
        if block % 4 == 3:
            print(f"block {block + 1:3d}  U/N {float(energies[-1]):.3f}  "
                  f"P {float(pressures[-1]):.3f}  T {float(k2) / (3 * p.n):.3f}  pairs {len(pairs)}")
    half = args.blocks // 3
    r, g = radial_distribution(pos, p)
    print(f"U/N = {np.mean(energies[half:]):.3f}, P = {np.mean(pressures[half:]):.3f}, "
          f"g(r) peaks at r = {r[g.argmax()]:.2f} with {g.max():.2f}")


if __name__ == "__main__":
    main()
