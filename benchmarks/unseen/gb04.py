# Lennard-Jones liquid in two dimensions: velocity Verlet with a Verlet list, and its pair correlation.
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial import cKDTree

N = 1024
DENSITY = 0.65
BOX = float(np.sqrt(N / DENSITY))
CUTOFF, SKIN = 2.5, 0.4
DT = 0.004
BLOCK = 25
BLOCKS_EQUIL, BLOCKS_PROD = 12, 16
TARGET_T = 0.9


class State(NamedTuple):
    pos: jax.Array
    vel: jax.Array
    force: jax.Array


def minimum_image(d):
    return d - BOX * jnp.round(d / BOX)


def pair_energy(pos, i, j):
    d = minimum_image(pos[i] - pos[j])
    r2 = jnp.sum(d * d, axis=-1)
    inside = r2 < CUTOFF ** 2
    inv6 = jnp.where(inside, 1.0 / jnp.where(inside, r2, 1.0), 0.0) ** 3
    shift = CUTOFF ** -12 - CUTOFF ** -6
    return jnp.sum(jnp.where(inside, 4.0 * (inv6 ** 2 - inv6 - shift), 0.0))


def forces(pos, i, j):
    return -jax.grad(pair_energy)(pos, i, j)


@partial(jax.jit, static_argnames=("thermostat",))
def run_block(state, i, j, thermostat):
    def step(s, _):
        vel = s.vel + 0.5 * DT * s.force
        pos = (s.pos + DT * vel) % BOX
        force = forces(pos, i, j)
        vel = vel + 0.5 * DT * force
        temp = jnp.mean(vel ** 2)
        if thermostat:
            vel = vel * jnp.sqrt(1 + 0.1 * (TARGET_T / temp - 1))
        return State(pos, vel, force), temp

    state, temps = jax.lax.scan(step, state, None, length=BLOCK)
    return state, temps.mean(), pair_energy(state.pos, i, j)


def neighbours(pos):
    tree = cKDTree(np.asarray(pos, np.float64) % BOX, boxsize=BOX)
    pairs = tree.query_pairs(CUTOFF + SKIN, output_type="ndarray").astype(np.int32)
    return pairs[:, 0], pairs[:, 1]


class PairCorrelation:
    def __init__(self, bins=50, rmax=5.0):
        self.edges = np.linspace(0.0, rmax, bins + 1)
        self.hist = np.zeros(bins)
        self.samples = 0

    def add(self, pos):
        d = minimum_image(pos[:, None, :] - pos[None, :, :])
        r = jnp.sqrt(jnp.sum(d * d, axis=-1))
        for b in range(len(self.hist)):
            self.hist[b] += float(jnp.sum((r > self.edges[b]) & (r <= self.edges[b + 1])))
        self.samples += 1

    def result(self):
        shell = np.pi * np.diff(self.edges ** 2)
        return self.hist / (self.samples * N * DENSITY * shell)


def lattice(rng):
    side = int(np.ceil(np.sqrt(N)))
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(-1, 2)[:N]
    pos = (grid + 0.5) * BOX / side + rng.normal(0, 0.02, (N, 2))
    vel = rng.normal(0, np.sqrt(TARGET_T), (N, 2))
    return pos.astype(np.float32), (vel - vel.mean(0)).astype(np.float32)


def main():
    pos, vel = lattice(np.random.default_rng(11))
    i, j = neighbours(pos)
    state = State(jnp.asarray(pos), jnp.asarray(vel), forces(jnp.asarray(pos), i, j))
    correlation = PairCorrelation()
    began = time.time()
    for block in range(BLOCKS_EQUIL + BLOCKS_PROD):
        equilibrating = block < BLOCKS_EQUIL
        i, j = neighbours(state.pos)
        state, temp, potential = run_block(state, i, j, thermostat=equilibrating)
        if not equilibrating:
            correlation.add(state.pos)
        if (block + 1) % 7 == 0:
            total = float(potential) / N + float(jnp.sum(state.vel ** 2)) / (2 * N)
            print(f"block {block + 1:3d}  T {float(temp):.3f}  E/N {total:+.4f}  pairs {len(i)}  "
                  f"{time.time() - began:.1f} s")
    g = correlation.result()
    peak = int(np.argmax(g))
    centre = 0.5 * (correlation.edges[peak] + correlation.edges[peak + 1])
    print(f"g(r): first peak {g[peak]:.2f} at r = {centre:.2f}, tail {g[-8:].mean():.3f}")
    assert np.isfinite(g).all()


if __name__ == "__main__":
    main()
