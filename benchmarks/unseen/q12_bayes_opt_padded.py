"""Bayesian optimisation of a catalyst recipe with a Gaussian process (equinox, optax).

The data grow with every experiment; they live in arrays of a capacity that doubles, masked."""
import math
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

DIM = 4
BUDGET = 60


def experiment(x, rng):
    """The yield of a recipe, in the laboratory (Hartmann-like)."""
    a = np.array([[10, 3, 17, 3.5], [0.05, 10, 17, 0.1], [3, 3.5, 1.7, 10], [17, 8, 0.05, 10]])
    p = np.array([[.13, .17, .56, .01], [.23, .41, .83, .37], [.23, .14, .35, .29], [.40, .88, .87, .57]])
    return float((np.array([1.0, 1.2, 3.0, 3.2]) * np.exp(-(a * (x - p) ** 2).sum(1))).sum() + 0.01 * rng.standard_normal())


class Data(eqx.Module):
    x: jax.Array
    y: jax.Array
    mask: jax.Array


class Observations:
    def __init__(self, capacity=16):
        self.x = np.zeros((capacity, DIM), np.float32)
        self.y = np.zeros(capacity, np.float32)
        self.n = 0

    def add(self, x, y):
        if self.n == len(self.x):
            self.x = np.concatenate([self.x, np.zeros_like(self.x)])
            self.y = np.concatenate([self.y, np.zeros_like(self.y)])
        self.x[self.n], self.y[self.n] = x, y
        self.n += 1

    def data(self):
        mask = np.arange(len(self.x)) < self.n
        y = (self.y - self.y[:self.n].mean()) / (self.y[:self.n].std() + 1e-6)
        return Data(jnp.array(self.x), jnp.array(y * mask), jnp.array(mask))


class GP(eqx.Module):
    log_scale: jax.Array
    log_amp: jax.Array
    log_noise: jax.Array
    kind: str = eqx.field(static=True)

    def kernel(self, a, b):
        d = (a[:, None] - b[None]) / jnp.exp(self.log_scale)
        r2 = jnp.sum(d**2, -1)
        if self.kind == "rbf":
            k = jnp.exp(-0.5 * r2)
        else:
            r = jnp.sqrt(5 * r2 + 1e-12)
            k = (1 + r + r**2 / 3) * jnp.exp(-r)
        return jnp.exp(2 * self.log_amp) * k

    def chol(self, data):
        both = data.mask[:, None] & data.mask[None]
        k = jnp.where(both, self.kernel(data.x, data.x), 0.0)
        noise = jnp.where(data.mask, jnp.exp(2 * self.log_noise) + 1e-4, 1.0)
        return jnp.linalg.cholesky(k + jnp.diag(noise))

    def nll(self, data):
        low = self.chol(data)
        z = jax.scipy.linalg.solve_triangular(low, data.y, lower=True)
        prior = jnp.sum(self.log_scale**2) + self.log_amp**2 + (self.log_noise + 3) ** 2
        return 0.5 * jnp.sum(z**2) + jnp.sum(jnp.log(jnp.diag(low))) + 0.5 * prior


tx = optax.adam(0.05)


@eqx.filter_jit
def fit(gp, data, steps=100):
    params, static = eqx.partition(gp, eqx.is_array)

    def body(carry, _):
        params, opt = carry
        value, grad = jax.value_and_grad(lambda p: eqx.combine(p, static).nll(data))(params)
        updates, opt = tx.update(grad, opt)
        return (optax.apply_updates(params, updates), opt), value

    (params, _), values = jax.lax.scan(body, (params, tx.init(params)), None, length=steps)
    return eqx.combine(params, static), values[-1]


@eqx.filter_jit
def suggest(gp, data, key, candidates=2048):
    x = jr.uniform(key, (candidates, DIM))
    low = gp.chol(data)
    cross = jnp.where(data.mask[:, None], gp.kernel(data.x, x), 0.0)
    v = jax.scipy.linalg.solve_triangular(low, cross, lower=True)
    alpha = jax.scipy.linalg.solve_triangular(low, data.y, lower=True)
    mean = v.T @ alpha
    std = jnp.sqrt(jnp.maximum(jnp.exp(2 * gp.log_amp) - jnp.sum(v**2, 0), 1e-9))
    best = jnp.max(jnp.where(data.mask, data.y, -jnp.inf))
    z = (mean - best) / std
    ei = std * (z * jax.scipy.stats.norm.cdf(z) + jax.scipy.stats.norm.pdf(z))
    return x[jnp.argmax(ei)]


def optimise(kind, seed):
    rng, key = np.random.default_rng(seed), jr.key(seed)
    seen = Observations()
    for x in rng.random((6, DIM)):
        seen.add(x, experiment(x, rng))
    gp = GP(jnp.full(DIM, math.log(0.3)), jnp.zeros(()), jnp.array(-3.0), kind)
    while seen.n < BUDGET:
        data = seen.data()
        gp, nll = fit(gp, data)
        x = np.asarray(suggest(gp, data, jr.fold_in(key, seen.n)))
        seen.add(x, experiment(x, rng))
        if seen.n % 20 == 0:
            print(f"{kind} seed {seed}: {seen.n} experiments, nll {float(nll):.2f}, best {seen.y[:seen.n].max():.3f}")
    return seen.y.max()


def main():
    t0 = time.perf_counter()
    for kind in ("rbf", "matern"):
        best = [optimise(kind, seed) for seed in range(4)]
        print(f"{kind}: {np.mean(best):.3f} +- {np.std(best):.3f} ({time.perf_counter() - t0:.1f} s)")


if __name__ == "__main__":
    main()
