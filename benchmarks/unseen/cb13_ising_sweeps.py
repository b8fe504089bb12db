"""Checkerboard Metropolis sweeps of the Ising model over a ladder of temperatures."""
import dataclasses
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass
class Run:
    size: int = 32
    burn_in: int = 2000
    measured: int = 6000
    temperatures: tuple = (1.8, 2.27, 2.8)
    block: int = 100


def checkerboard(n):
    i = jnp.arange(n)
    return (i[:, None] + i[None]) % 2 == 0


def neighbours(s):
    return jnp.roll(s, 1, 0) + jnp.roll(s, -1, 0) + jnp.roll(s, 1, 1) + jnp.roll(s, -1, 1)


def half_sweep(spins, key, beta, mask):
    cost = 2 * spins * neighbours(spins)
    accept = jax.random.uniform(key, spins.shape) < jnp.exp(-beta * cost)
    return jnp.where(mask & accept, -spins, spins)


def full_sweep(spins, key, beta):
    even = checkerboard(spins.shape[0])
    k1, k2 = jax.random.split(key)
    return half_sweep(half_sweep(spins, k1, beta, even), k2, beta, ~even)


def energy(s):
    return -(s * (jnp.roll(s, 1, 0) + jnp.roll(s, 1, 1))).mean()


class Recorder:
    """Collects energies and magnetisations, and block averages them."""

    def __init__(self, block):
        self.block = block
        self.clear()

    def clear(self):
        self.e, self.m = [], []

    def push(self, e, m):
        self.e.append(float(e))
        self.m.append(float(m))

    def blocked(self, series):
        n = len(series) // self.block * self.block
        b = np.asarray(series[:n]).reshape(-1, self.block).mean(1)
        return b.mean(), b.std() / np.sqrt(len(b))

    def summary(self, temperature, sites):
        e, de = self.blocked(self.e)
        m, dm = self.blocked(np.abs(self.m))
        heat = np.var(self.e) * sites / temperature**2
        return dict(e=e, de=de, m=m, dm=dm, heat=heat)


class Simulation:
    def __init__(self, run, seed=0):
        self.run = run
        self.recorder = Recorder(run.block)
        self.key = jax.random.key(seed)
        self.spins = jnp.ones((run.size, run.size))
        self.sweep = jax.jit(full_sweep, donate_argnums=0)
        self.measure = jax.jit(self._measure, static_argnums=3)

    def _measure(self, spins, key, beta, n):
        def body(s, k):
            s = full_sweep(s, k, beta)
            jax.debug.callback(self.recorder.push, energy(s), s.mean(), ordered=True)
            return s, None

        return jax.lax.scan(body, spins, jax.random.split(key, n))[0]

    def equilibrate(self, beta):
        self.key, sub = jax.random.split(self.key)
        for k in jax.random.split(sub, self.run.burn_in):
            self.spins = self.sweep(self.spins, k, beta)

    def at(self, temperature):
        beta = np.float32(1 / temperature)
        self.equilibrate(beta)
        self.recorder.clear()
        self.key, sub = jax.random.split(self.key)
        self.spins = self.measure(self.spins, sub, beta, self.run.measured)
        jax.effects_barrier()
        return self.recorder.summary(temperature, self.run.size**2)


def main():
    run = Run()
    sim, t0 = Simulation(run), time.time()
    table = []
    for t in run.temperatures:
        row = sim.at(t)
        table.append((t, row["heat"]))
        print(f"T {t:.2f} e {row['e']:.4f}({row['de']:.4f}) |m| {row['m']:.3f}({row['dm']:.3f}) "
              f"c {row['heat']:.2f} {time.time() - t0:.1f}s")
    print("heat peaks at T =", max(table, key=lambda r: r[1])[0])


if __name__ == "__main__":
    main()
