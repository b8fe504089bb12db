"""Bayesian optimisation of a (pretended) pilot plant with a Gaussian process.

Each evaluation of the plant costs a day, so the surrogate is refitted after
each one: marginal likelihood by Adam, then expected improvement over a
candidate cloud.
"""
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import optax
from jax.scipy.stats import norm

DIM = 5
FIT_STEPS = 120
BUDGET = 8
INITIAL = 12


class Hyper(NamedTuple):
    log_scale: jax.Array
    log_amp: jax.Array
    log_noise: jax.Array


def plant(x, rng):
    """Yield of the reactor: temperature, pressure, two feeds, residence time."""
    centre = np.array([0.3, 0.7, 0.45, 0.6, 0.2])
    bump = np.exp(-4.0 * ((x - centre) ** 2).sum())
    ripple = 0.12 * np.cos(9 * x[0]) * np.sin(5 * x[3])
    return bump + ripple + 0.01 * rng.standard_normal()


def matern52(h, a, b):
    a, b = a / jnp.exp(h.log_scale), b / jnp.exp(h.log_scale)
    d2 = jnp.maximum((a ** 2).sum(-1)[:, None] + (b ** 2).sum(-1)[None] - 2 * a @ b.T, 1e-10)
    d = jnp.sqrt(5.0 * d2)
    return jnp.exp(h.log_amp) * (1 + d + d ** 2 / 3) * jnp.exp(-d)


def factor(h, x):
    k = matern52(h, x, x)
    return jnp.linalg.cholesky(k + (jnp.exp(h.log_noise) + 1e-5) * jnp.eye(len(x)))


def nll(h, x, y):
    chol = factor(h, x)
    alpha = jsl.cho_solve((chol, True), y)
    prior = 0.5 * (h.log_scale ** 2).sum() + 0.1 * (h.log_noise + 6) ** 2
    return 0.5 * y @ alpha + jnp.log(jnp.diagonal(chol)).sum() + prior


opt = optax.adam(0.05)


@jax.jit
def fit(h, x, y):
    def step(carry, _):
        h, state = carry
        value, grads = jax.value_and_grad(nll)(h, x, y)
        updates, state = opt.update(grads, state)
        return (optax.apply_updates(h, updates), state), value

    (h, _), values = jax.lax.scan(step, (h, opt.init(h)), None, length=FIT_STEPS)
    return h, values[-1]


@jax.jit
def expected_improvement(h, x, y, cand):
    chol = factor(h, x)
    ks = matern52(h, x, cand)
    v = jsl.solve_triangular(chol, ks, lower=True)
    mu = ks.T @ jsl.cho_solve((chol, True), y)
    sd = jnp.sqrt(jnp.maximum(jnp.exp(h.log_amp) - (v ** 2).sum(0), 1e-9))
    z = (mu - y.max() - 0.01) / sd
    return sd * (z * norm.cdf(z) + norm.pdf(z))


def candidates(rng, best, n=2048):
    wide = rng.random((n // 2, DIM))
    near = np.clip(best + 0.08 * rng.standard_normal((n // 2, DIM)), 0, 1)
    return np.concatenate([wide, near]).astype(np.float32)


def main():
    rng = np.random.default_rng(3)
    xs = list(rng.random((INITIAL, DIM)))
    ys = [plant(x, rng) for x in xs]
    h = Hyper(jnp.zeros(DIM), jnp.array(0.0), jnp.array(-5.0))
    start = time.perf_counter()
    for day in range(BUDGET):
        x = jnp.asarray(np.array(xs), jnp.float32)
        raw = np.array(ys)
        y = jnp.asarray((raw - raw.mean()) / raw.std(), jnp.float32)
        h, value = fit(h, x, y)
        cand = candidates(rng, xs[int(np.argmax(ys))])
        score = expected_improvement(h, x, y, cand)
        pick = np.asarray(cand)[int(jnp.argmax(score))]
        xs.append(pick)
        ys.append(plant(pick, rng))
        if (day + 1) % 4 == 0:
            print(f"day {day + 1:3d}: best yield {max(ys):.4f}, last {ys[-1]:.4f}, "
                  f"nll {float(value):.2f}, {time.perf_counter() - start:.1f} s")
    best = xs[int(np.argmax(ys))]
    print("best settings:", np.round(best, 3), "yield", round(max(ys), 4))
    print("length scales:", np.round(np.exp(np.asarray(h.log_scale)), 2))


if __name__ == "__main__":
    main()
