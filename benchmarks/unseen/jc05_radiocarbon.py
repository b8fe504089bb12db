"""Hierarchical logistic regression with hand-written Hamiltonian Monte Carlo.

Finds from 30 sites, each dated or not: the chance of a successful date depends on six covariates, with a random
intercept per site. Step size adapts by dual averaging in the warm-up; four chains run side by side.
"""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

CHAINS, LEAPFROG, WARMUP, DRAWS = 4, 48, 300, 500
N, P, SITES = 1200, 6, 30


class Data(NamedTuple):
    x: jax.Array
    site: jax.Array
    y: jax.Array


def make_data(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, P)).astype(np.float32)
    site = rng.integers(0, SITES, N)
    beta = np.array([0.8, -0.5, 0.0, 0.3, 0.0, -1.0])
    logits = 0.4 + x @ beta + 0.7 * rng.normal(size=SITES)[site]
    y = (rng.uniform(size=N) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    return Data(jnp.asarray(x), jnp.asarray(site, jnp.int32), jnp.asarray(y)), beta


def unpack(theta):
    return theta[0], theta[1:1 + P], theta[1 + P], theta[2 + P:]


def log_posterior(theta, data):
    intercept, beta, log_sd, raw = unpack(theta)
    effect = jnp.exp(log_sd) * raw
    logits = intercept + data.x @ beta + effect[data.site]
    like = jnp.sum(data.y * logits - jnp.logaddexp(0.0, logits))
    prior = -0.5 * (intercept**2 / 4 + beta @ beta + raw @ raw) - 0.5 * (log_sd + 0.5) ** 2
    return like + prior


grad_log_posterior = jax.grad(log_posterior)


def trajectory(theta, momentum, step_size, data):
    """Leapfrog integration of LEAPFROG steps."""
    momentum = momentum + 0.5 * step_size * grad_log_posterior(theta, data)
    for i in range(LEAPFROG):
        theta = theta + step_size * momentum
        scale = 1.0 if i < LEAPFROG - 1 else 0.5
        momentum = momentum + scale * step_size * grad_log_posterior(theta, data)
    return theta, -momentum


def transition(key, theta, step_size, data):
    k_mom, k_acc, k_jit = jax.random.split(key, 3)
    momentum = jax.random.normal(k_mom, theta.shape)
    eps = step_size * jax.random.uniform(k_jit, minval=0.8, maxval=1.2)
    new, new_mom = trajectory(theta, momentum, eps, data)
    energy = lambda t, m: -log_posterior(t, data) + 0.5 * m @ m
    log_ratio = jnp.nan_to_num(energy(theta, momentum) - energy(new, new_mom), nan=-jnp.inf)
    accept = jnp.minimum(1.0, jnp.exp(log_ratio))
    return jnp.where(jax.random.uniform(k_acc) < accept, new, theta), accept


@jax.jit
def hmc_step(keys, thetas, step_size, data):
    return jax.vmap(transition, in_axes=(0, 0, None, None))(keys, thetas, step_size, data)


class DualAveraging:
    """Nesterov's dual averaging towards a target acceptance, on the host."""

    def __init__(self, start, target=0.8):
        self.mu, self.target = np.log(10 * start), target
        self.h, self.log_avg, self.t = 0.0, np.log(start), 0

    def update(self, accept):
        self.t += 1
        self.h += (self.target - accept - self.h) / (self.t + 10)
        log_eps = self.mu - np.sqrt(self.t) / 0.05 * self.h
        w = self.t**-0.75
        self.log_avg = w * log_eps + (1 - w) * self.log_avg
        return float(np.exp(log_eps))

    @property
    def final(self):
        return float(np.exp(self.log_avg))


def r_hat(draws):
    """Gelman-Rubin; draws is [steps, chains, dims]."""
    n = draws.shape[0]
    within = draws.var(0, ddof=1).mean(0)
    between = n * draws.mean(0).var(0, ddof=1)
    return np.sqrt(((n - 1) / n * within + between / n) / within)


data, beta_true = make_data(11)
key, k_init = jax.random.split(jax.random.key(2))
thetas = 0.1 * jax.random.normal(k_init, (CHAINS, 2 + P + SITES))
adapt = DualAveraging(0.02)
eps, kept, rates = 0.02, [], []
for i in range(WARMUP + DRAWS):
    key, sub = jax.random.split(key)
    thetas, accept = hmc_step(jax.random.split(sub, CHAINS), thetas, eps, data)
    if i < WARMUP:
        eps = adapt.update(float(accept.mean()))
        if i == WARMUP - 1:
            eps = adapt.final
            print(f"warm-up done, step size {eps:.4f}")
    else:
        kept.append(thetas)
        rates.append(accept)
draws = np.asarray(jnp.stack(kept))
print(f"acceptance {float(jnp.stack(rates).mean()):.3f}, worst r-hat {r_hat(draws).max():.3f}")
for j in range(P):
    b = draws[..., 1 + j]
    print(f"beta[{j}] {b.mean():+.3f} +- {b.std():.3f}   (true {beta_true[j]:+.1f})")
