"""Kriging of rainfall, one Gaussian process per river basin. Most basins have few gauges, some many; they
are padded to two sizes, the hyperparameters fitted by Adam in chunks until the likelihood settles, and
the leave-one-out error of every tenth basin printed (plain JAX + optax)."""
import argparse
import time
from collections import defaultdict
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

SIZES = (40, 128)
CHUNK, MAX_CHUNKS = 60, 10


class Basin(NamedTuple):
    name: str
    n: int
    place: np.ndarray      # (size, 3): east, north (100 km), height (km)
    rain: np.ndarray       # (size,)
    real: np.ndarray       # (size,) 1.0 for a gauge, 0.0 for padding


def draw_basins(count, rng):
    basins = []
    for b in range(count):
        n = int(rng.integers(20, 41) if rng.random() < 0.8 else rng.integers(80, 129))
        size = next(s for s in SIZES if n <= s)
        xy = rng.uniform(0, 2.0, (n, 2))
        bumps = rng.uniform(0, 2.0, (6, 2))
        d2 = ((xy[:, None] - bumps[None]) ** 2).sum(-1)
        height = 0.8 * np.exp(-d2 / 0.3).sum(1) + 0.05 * rng.normal(size=n)
        field = np.sin(2.0 * xy[:, 0] + b) + np.cos(1.5 * xy[:, 1]) + 0.7 * height
        rain = field + rng.normal(0, 0.2, n)
        place, y, real = np.zeros((size, 3), np.float32), np.zeros(size, np.float32), np.zeros(size, np.float32)
        place[:n], y[:n], real[:n] = np.c_[xy, height], (rain - rain.mean()) / rain.std(), 1.0
        basins.append(Basin(f"basin-{b:03d}", n, place, y, real))
    return basins


def start_values():
    return {"scale": jnp.zeros(2), "reach": jnp.log(jnp.array([0.6, 0.5])), "noise": jnp.log(jnp.float32(0.3))}


def covariance(p, place, real):
    """A Matern 3/2 over the plane plus a squared exponential over height; padding is an identity block."""
    gap = place[:, None] - place[None]
    parts = []
    for k, cols in enumerate((slice(0, 2), slice(2, 3))):
        r = jnp.sqrt(jnp.sum(gap[..., cols] ** 2, -1) + 1e-9) / jnp.exp(p["reach"][k])
        shape = (1 + jnp.sqrt(3.0) * r) * jnp.exp(-jnp.sqrt(3.0) * r) if k == 0 else jnp.exp(-0.5 * r**2)
        parts.append(jnp.exp(2 * p["scale"][k]) * shape)
    both = real[:, None] * real[None]
    noise = jnp.exp(2 * p["noise"]) + 1e-4
    return both * sum(parts) + jnp.diag(real * noise + (1.0 - real))


def nll(p, place, rain, real):
    chol = jnp.linalg.cholesky(covariance(p, place, real))
    w = jax.scipy.linalg.solve_triangular(chol, rain, lower=True)
    prior = 0.5 * sum(jnp.sum(v**2) for v in jax.tree.leaves(p)) * 0.1
    return 0.5 * w @ w + jnp.sum(jnp.log(jnp.diag(chol))) + prior


optim = optax.adam(optax.cosine_decay_schedule(0.05, CHUNK * MAX_CHUNKS, alpha=0.2))


@partial(jax.jit, donate_argnums=(0, 1))
def fit_chunk(p, state, place, rain, real):
    def body(carry, _):
        p, state = carry
        value, grads = jax.value_and_grad(nll)(p, place, rain, real)
        updates, state = optim.update(grads, state)
        return (optax.apply_updates(p, updates), state), value

    (p, state), values = jax.lax.scan(body, (p, state), None, length=CHUNK)
    return p, state, values[-1]


@jax.jit
def leave_one_out(p, place, rain, real):
    inverse = jnp.linalg.inv(covariance(p, place, real))
    error = (inverse @ rain) / jnp.diag(inverse)
    return jnp.sqrt(jnp.sum(real * error**2) / jnp.sum(real))


def fit(basin, tolerance):
    place, rain, real = jax.device_put((basin.place, basin.rain, basin.real))
    p = start_values()
    state = optim.init(p)
    last = np.inf
    for chunk in range(MAX_CHUNKS):
        p, state, value = fit_chunk(p, state, place, rain, real)
        now = float(value)
        if last - now < tolerance:
            break
        last = now
    return p, now, (chunk + 1) * CHUNK, float(leave_one_out(p, place, rain, real))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--basins", type=int, default=220)
    ap.add_argument("--tolerance", type=float, default=0.02)
    args = ap.parse_args()
    basins = draw_basins(args.basins, np.random.default_rng(5))
    groups = defaultdict(list)
    for basin in basins:
        groups[len(basin.rain)].append(basin)
    for size in sorted(groups):
        start = time.perf_counter()
        for i, basin in enumerate(groups[size]):
            p, value, steps, rmse = fit(basin, args.tolerance)
            if i % 10:
                continue
            reach = np.exp(np.asarray(p["reach"]))
            print(f"{basin.name} {basin.n:3d} gauges {steps:3d} steps  nll {value:7.2f}  "
                  f"reach {100 * reach[0]:4.0f} km {reach[1]:.2f} km up  leave-one-out {rmse:.3f}")
        print(f"size {size}: {len(groups[size])} basins, {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
