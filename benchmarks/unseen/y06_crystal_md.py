"""Molecular dynamics of a Lennard-Jones crystal that is heated until it melts (reduced units)."""
import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial import cKDTree

CUTOFF, SKIN, DT = 2.2, 0.3, 0.004


def fcc_lattice(cells, density=0.95):
    a = (4 / density) ** (1 / 3)
    base = np.array([[0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]])
    grid = np.stack(np.meshgrid(*[np.arange(cells)] * 3, indexing="ij"), -1).reshape(-1, 1, 3)
    return ((grid + base) * a).reshape(-1, 3), a * cells


def neighbour_table(positions, box):
    """For each atom the indices of all atoms within the cutoff, filled up with the atom itself."""
    wrapped = np.mod(np.asarray(positions, np.float64), box) % box
    near = cKDTree(wrapped, boxsize=box).query_ball_point(wrapped, CUTOFF + SKIN)
    width = max(len(p) for p in near)
    table = np.tile(np.arange(len(wrapped), dtype=np.int32)[:, None], (1, width))
    for i, p in enumerate(near):
        table[i, :len(p)] = p
    return table


def potential(positions, table, box):
    d = positions[:, None] - positions[table]
    d = d - box * jnp.round(d / box)
    r2 = jnp.sum(d * d, -1)
    real = (table != jnp.arange(table.shape[0])[:, None]) & (r2 < CUTOFF**2)
    inv6 = 1.0 / jnp.where(real, r2, 1.0) ** 3
    shift = CUTOFF**-12 - CUTOFF**-6
    return 2.0 * jnp.sum(jnp.where(real, inv6 * inv6 - inv6 - shift, 0.0))


@jax.jit
def leapfrog(pos, vel, force, table, box):
    vel_half = vel + 0.5 * DT * force
    pos = pos + DT * vel_half
    new_force = -jax.grad(potential)(pos, table, box)
    vel = vel_half + 0.5 * DT * new_force
    return pos, vel, new_force


@jax.jit
def rescale(vel, target):
    now = jnp.mean(vel**2)
    return vel * jnp.sqrt(1 + 0.4 * (target / now - 1))


@jax.jit
def initial_force(pos, table, box):
    return -jax.grad(potential)(pos, table, box)


def temperature(vel):
    vel = vel - jnp.mean(vel, axis=0)
    return float(jnp.sum(vel * vel) / (3 * (vel.shape[0] - 1)))


@partial(jax.jit, static_argnames="bins")
def pair_distances(pos, box, bins):
    d = pos[:, None] - pos[None]
    d = d - box * jnp.round(d / box)
    r = jnp.sqrt(jnp.sum(d * d, -1) + 1e-9)
    hist, _ = jnp.histogram(r, bins=bins, range=(0.5, 3.0))
    return hist


def lindemann(pos, start):
    shift = np.asarray(pos) - start
    shift -= shift.mean(0)
    return float(np.sqrt((shift**2).sum(1).mean()))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--cells", type=int, default=4)
    ap.add_argument("--blocks", type=int, default=110)
    ap.add_argument("--steps-per-block", type=int, default=50)
    args = ap.parse_args()

    rng = np.random.default_rng(2)
    lattice, box = fcc_lattice(args.cells)
    start = lattice.astype(np.float32)
    box = np.float32(box)
    vel = rng.normal(0, 0.7, start.shape).astype(np.float32)
    pos, vel = jnp.asarray(start), jnp.asarray(vel - vel.mean(0))
    table = jnp.asarray(neighbour_table(pos, float(box)))
    force = initial_force(pos, table, box)
    targets = np.linspace(0.5, 2.6, args.blocks, dtype=np.float32)

    trace = []
    for block, target in enumerate(targets):
        table = jnp.asarray(neighbour_table(pos, float(box)))
        for _ in range(args.steps_per_block):
            pos, vel, force = leapfrog(pos, vel, force, table, box)
            trace.append(temperature(vel))
        vel = rescale(vel, target)
        if block % 10 == 9:
            hist = np.asarray(pair_distances(pos, box, bins=25))
            print(f"block {block:3d}  T* {np.mean(trace[-args.steps_per_block:]):.3f}  target {target:.2f}  "
                  f"displacement {lindemann(pos, start):.3f}  first peak at {0.5 + 0.1 * hist[:12].argmax():.1f}")
    print(f"highest temperature on the way {max(trace):.3f}, {len(trace)} steps")


if __name__ == "__main__":
    main()
