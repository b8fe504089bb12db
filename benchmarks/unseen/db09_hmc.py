"""Hamiltonian Monte Carlo for a hierarchical Poisson regression (radon-style), many chains.

The trajectory length is jittered so that chains do not resonate; the step size is adapted
during warm-up by dual averaging.
"""
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

GROUPS, OBS, CHAINS = 40, 1500, 8
WARMUP, DRAWS = 150, 250


def make_data(seed):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, GROUPS, OBS)
    x = rng.normal(size=(OBS, 3))
    alpha = 0.5 + 0.6 * rng.normal(size=GROUPS)
    beta = np.array([0.4, -0.3, 0.1])
    y = rng.poisson(np.exp(alpha[group] + x @ beta))
    return jnp.asarray(group), jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)


GROUP, X, Y = make_data(4)
SIZES = {"alpha": GROUPS, "beta": 3, "mu": 1, "log_tau": 1}
DIM = sum(SIZES.values())


def unpack(theta):
    out, at = {}, 0
    for name, n in SIZES.items():
        out[name] = theta[at : at + n]
        at += n
    return out


def log_density(theta):
    p = unpack(theta)
    tau = jnp.exp(p["log_tau"])
    alpha = p["mu"] + tau * p["alpha"]
    rate = alpha[GROUP] + X @ p["beta"]
    ll = jnp.sum(Y * rate - jnp.exp(rate))
    prior = -0.5 * (jnp.sum(p["alpha"] ** 2) + jnp.sum(p["beta"] ** 2) + jnp.sum(p["mu"] ** 2))
    return ll + prior - 0.5 * jnp.sum(p["log_tau"] ** 2)


grad_log_density = jax.vmap(jax.grad(log_density))
batched_density = jax.vmap(log_density)


@partial(jax.jit, static_argnames="n_leap")
def hmc_step(theta, key, eps, n_leap):
    k1, k2 = jax.random.split(key)
    p0 = jax.random.normal(k1, theta.shape)
    q, p = theta, p0 + 0.5 * eps * grad_log_density(theta)
    for i in range(n_leap):
        q = q + eps * p
        p = p + (eps if i < n_leap - 1 else 0.5 * eps) * grad_log_density(q)
    energy0 = batched_density(theta) - 0.5 * jnp.sum(p0**2, axis=1)
    energy = batched_density(q) - 0.5 * jnp.sum(p**2, axis=1)
    accept = jnp.exp(jnp.minimum(0.0, jnp.nan_to_num(energy - energy0, nan=-1e3)))
    take = jax.random.uniform(k2, accept.shape) < accept
    return jnp.where(take[:, None], q, theta), accept.mean()


class DualAveraging:
    def __init__(self, eps, target=0.8):
        self.mu, self.target = np.log(10 * eps), target
        self.h, self.log_bar, self.t = 0.0, 0.0, 0
        self.eps = eps

    def update(self, accept):
        self.t += 1
        w = 1 / (self.t + 10)
        self.h = (1 - w) * self.h + w * (self.target - accept)
        log_eps = self.mu - np.sqrt(self.t) / 0.05 * self.h
        k = self.t**-0.75
        self.log_bar = k * log_eps + (1 - k) * self.log_bar
        self.eps = float(np.exp(log_eps))


def rhat(draws):
    """Potential scale reduction, draws: [n, chains, dim]."""
    n = draws.shape[0]
    within = draws.var(axis=0, ddof=1).mean(axis=0)
    between = n * draws.mean(axis=0).var(axis=0, ddof=1)
    return np.sqrt(((n - 1) / n * within + between / n) / within)


def main():
    rng = np.random.default_rng(0)
    key = jax.random.key(1)
    theta = 0.1 * jax.random.normal(key, (CHAINS, DIM))
    adapt = DualAveraging(0.02)
    draws, start = [], time.perf_counter()
    for it in range(WARMUP + DRAWS):
        key, k = jax.random.split(key)
        n_leap = int(rng.integers(8, 17))
        theta, accept = hmc_step(theta, k, adapt.eps, n_leap)
        if it < WARMUP:
            adapt.update(float(accept))
            if it == WARMUP - 1:
                adapt.eps = float(np.exp(adapt.log_bar))
        else:
            draws.append(theta)
        if it % 100 == 99:
            print(f"iteration {it + 1}: step size {adapt.eps:.4f}  accept {float(accept):.2f}  {time.perf_counter() - start:.1f} s")
    draws = np.asarray(jnp.stack(draws))
    beta = draws[..., GROUPS : GROUPS + 3]
    print("beta", beta.mean(axis=(0, 1)).round(3), "sd", beta.std(axis=(0, 1)).round(3))
    print("worst r-hat", rhat(draws).max().round(3))


if __name__ == "__main__":
    main()
