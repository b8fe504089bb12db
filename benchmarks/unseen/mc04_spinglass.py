"""Simulated annealing of the 3-D Edwards-Anderson spin glass.

A population of replicas of one disorder sample is cooled together by checkerboard
heat-bath sweeps; energy and the overlap distribution P(q) are measured at each
temperature.
"""
import time
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

L = 8
REPLICAS = 48


@dataclass(frozen=True)
class Protocol:
    """What is done at one temperature of the schedule."""
    temperature: float
    equilibrate: int = 60
    measure: int = 20
    field: float = 0.0


class EdwardsAnderson:
    def __init__(self, size, seed):
        rng = np.random.default_rng(seed)
        # coupling of each site to its forward neighbour along x, y, z
        self.J = jnp.asarray(rng.choice([-1.0, 1.0], size=(3, size, size, size)), jnp.float32)
        parity = np.indices((size,) * 3).sum(axis=0) % 2
        self.parity = jnp.asarray(np.stack([parity == 0, parity == 1]))
        self.volume = size ** 3

    def local_field(self, spins):
        h = jnp.zeros_like(spins)
        for axis in range(3):
            J = self.J[axis]
            h = h + J * jnp.roll(spins, -1, axis=axis + 1)
            h = h + jnp.roll(J * spins, 1, axis=axis + 1)
        return h

    def energy(self, spins):
        return -0.5 * jnp.sum(spins * self.local_field(spins), axis=(1, 2, 3)) / self.volume

    @partial(jax.jit, static_argnums=(0, 3))
    def anneal(self, spins, key, protocol):
        beta = 1.0 / protocol.temperature

        def sweep(spins, key):
            for colour, k in zip(self.parity, jax.random.split(key)):
                h = self.local_field(spins) + protocol.field
                up = jax.nn.sigmoid(2.0 * beta * h)
                new = jnp.where(jax.random.uniform(k, spins.shape) < up, 1.0, -1.0)
                spins = jnp.where(colour, new, spins)
            return spins

        def equilibrate(spins, key):
            return sweep(spins, key), None

        def measure(spins, key):
            spins = sweep(spins, key)
            e = self.energy(spins)
            return spins, (e.mean(), jnp.mean(e ** 2))

        k1, k2 = jax.random.split(key)
        spins, _ = jax.lax.scan(equilibrate, spins,
                                jax.random.split(k1, protocol.equilibrate))
        spins, (e, e2) = jax.lax.scan(measure, spins, jax.random.split(k2, protocol.measure))
        heat = self.volume * beta ** 2 * (e2.mean() - e.mean() ** 2)
        return spins, e.mean(), heat


class OverlapMonitor:
    """Collects P(q) from all the pairs of replicas."""

    def __init__(self, bins=21):
        self.edges = np.linspace(-1.0, 1.0, bins + 1)
        self.rows = []

    def update(self, spins):
        q = []
        for a in range(len(spins)):
            for b in range(a):
                q.append(jnp.mean(spins[a] * spins[b]))
        q = np.asarray([float(v) for v in q])
        histogram, _ = np.histogram(q, bins=self.edges, density=True)
        self.rows.append(histogram)
        return float(np.mean(q ** 2)), float(np.mean(q ** 4))


def schedule(t_hot, t_cold, n):
    return np.geomspace(t_hot, t_cold, n)


def main():
    t0 = time.time()
    model = EdwardsAnderson(L, seed=3)
    key = jax.random.key(11, impl="rbg")
    key, sub = jax.random.split(key)
    spins = jnp.where(jax.random.bernoulli(sub, 0.5, (REPLICAS, L, L, L)), 1.0, -1.0)
    monitor = OverlapMonitor()
    base = Protocol(temperature=3.0)
    summary = []
    for step, temperature in enumerate(schedule(3.0, 0.4, 16)):
        key, sub = jax.random.split(key)
        protocol = replace(base, temperature=float(temperature))
        spins, e, heat = model.anneal(spins, sub, protocol)
        q2, q4 = monitor.update(spins)
        binder = 0.5 * (3.0 - q4 / max(q2 ** 2, 1e-12))
        summary.append((temperature, float(e), float(heat), q2, binder))
        if step % 3 == 0:
            print("T=%.3f  e=%.4f  c=%.3f  <q2>=%.4f  g=%.3f" % summary[-1],
                  f" [{time.time() - t0:.1f}s]")
    best = model.energy(spins).min()
    print("lowest energy per spin", float(best), "peak of specific heat at T =",
          max(summary, key=lambda row: row[2])[0])


if __name__ == "__main__":
    main()
