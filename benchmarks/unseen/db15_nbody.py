"""Molecular dynamics of a Lennard-Jones fluid: velocity Verlet, thermostat, radial distribution."""
import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--side", type=int, default=3)
parser.add_argument("--steps", type=int, default=12000)
parser.add_argument("--density", type=float, default=0.7)
parser.add_argument("--temperature", type=float, default=1.1)
args = parser.parse_args([])

N = 2 * args.side**3
BOX = (N / args.density) ** (1 / 3)
CUT = min(2.5, BOX / 2)
DT = 0.004


def lattice():
    g = (np.arange(args.side) + 0.25) * BOX / args.side
    a = np.stack(np.meshgrid(g, g, g), -1).reshape(-1, 3)
    return jnp.asarray(np.concatenate([a, a + BOX / args.side / 2]) % BOX, jnp.float32)


def displacement(pos):
    d = pos[:, None] - pos[None]
    return d - BOX * jnp.round(d / BOX)


def forces(pos):
    """Forces, potential energy and virial with a plain cutoff."""
    d = displacement(pos)
    r2 = jnp.sum(d**2, axis=-1) + jnp.eye(N) * 1e6
    inv6 = jnp.where(r2 < CUT**2, 1.0 / r2**3, 0.0)
    pair = 24 * (2 * inv6**2 - inv6)
    f = jnp.sum((pair / r2)[..., None] * d, axis=1)
    return f, 2 * jnp.sum(inv6**2 - inv6), 0.5 * jnp.sum(pair)


class Recorder:
    """Time series of thermodynamic quantities."""

    def __init__(self):
        self.rows = []

    def __call__(self, potential, kinetic, virial):
        temp = 2 * float(kinetic) / (3 * N)
        pressure = args.density * temp + float(virial) / (3 * BOX**3)
        self.rows.append((float(potential) / N, temp, pressure))

    def table(self):
        return np.array(self.rows)


recorder = Recorder()


def verlet(state, key, thermostat):
    pos, vel, f = state
    vel = vel + 0.5 * DT * f
    pos = (pos + DT * vel) % BOX
    f, pot, virial = forces(pos)
    vel = vel + 0.5 * DT * f
    kick = jax.random.normal(key, vel.shape) * jnp.sqrt(args.temperature)
    c = jnp.where(thermostat, 0.98, 1.0)
    vel = c * vel + jnp.sqrt(1 - c**2) * kick
    kin = 0.5 * jnp.sum(vel**2)
    jax.debug.callback(recorder, pot, kin, virial)
    return (pos, vel, f), None


@jax.jit
def run_block(state, key, thermostat):
    keys = jax.random.split(key, 1000)
    state, _ = jax.lax.scan(lambda s, k: verlet(s, k, thermostat), state, keys)
    return state


@jax.jit
def pair_histogram(pos):
    r = jnp.sqrt(jnp.sum(displacement(pos) ** 2, axis=-1) + jnp.eye(N) * 1e6)
    counts, _ = jnp.histogram(r, bins=40, range=(0.0, BOX / 2))
    return counts


def main():
    key = jax.random.key(0)
    pos = lattice()
    vel = jnp.sqrt(args.temperature) * jax.random.normal(key, pos.shape)
    state = (pos, vel - vel.mean(axis=0), forces(pos)[0])
    hist, start = 0, time.perf_counter()
    blocks = args.steps // 1000
    for block in range(blocks):
        key, k = jax.random.split(key)
        state = run_block(state, k, block < blocks // 2)
        if block >= blocks // 2:
            hist = hist + pair_histogram(state[0])
        if block % 4 == 3:
            jax.effects_barrier()
            u, t, p = recorder.table()[-1000:].mean(axis=0)
            print(f"step {1000 * (block + 1)}: energy {u:.3f}  temperature {t:.3f}  pressure {p:.3f}  {time.perf_counter() - start:.1f} s")
    edges = np.linspace(0, BOX / 2, 41)
    shell = 4 / 3 * np.pi * np.diff(edges**3) * args.density * N * (blocks - blocks // 2)
    g = np.asarray(hist) / shell
    print(f"first peak of g(r): {g.max():.2f} at r = {edges[g.argmax()]:.2f}")


if __name__ == "__main__":
    main()
