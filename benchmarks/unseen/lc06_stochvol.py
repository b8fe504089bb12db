"""Particle marginal Metropolis-Hastings for a stochastic volatility model with leverage.

    x[t+1] = mu + phi (x[t] - mu) + sigma eta[t],     y[t] = exp(x[t] / 2) eps[t],
    corr(eta[t], eps[t]) = rho.

The bootstrap filter estimates the likelihood, an adaptive random walk explores
(mu, phi, sigma, rho) on an unconstrained scale (Andrieu, Doucet and Holenstein 2010).  This is the
short pilot run that fixes the proposal covariance.
"""
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

T = 400
PARTICLES = 512
PILOT = 28


class Theta(NamedTuple):
    mu: float
    phi: float
    sigma: float
    rho: float

    @classmethod
    def from_free(cls, u):
        return cls(float(u[0]), float(np.tanh(u[1])), float(np.exp(u[2])), float(np.tanh(u[3])))


def simulate(theta, n, seed):
    rng = np.random.default_rng(seed)
    x = theta.mu
    ys = np.empty(n)
    for t in range(n):
        eps = rng.normal()
        eta = theta.rho * eps + np.sqrt(1 - theta.rho ** 2) * rng.normal()
        ys[t] = np.exp(x / 2) * eps
        x = theta.mu + theta.phi * (x - theta.mu) + theta.sigma * eta
    return ys.astype(np.float32)


class StochasticVolatility:
    """State-space model: what a filter needs to know about the process."""

    def __init__(self, theta):
        self.theta = theta

    def initial(self, key, n):
        th = self.theta
        return th.mu + th.sigma / np.sqrt(1 - th.phi ** 2) * jax.random.normal(key, (n,))

    def log_likelihood(self, x, y):
        return -0.5 * (jnp.log(2 * jnp.pi) + x + y ** 2 * jnp.exp(-x))

    def propagate(self, key, x, y):
        th = self.theta
        eps = y * jnp.exp(-x / 2)
        eta = th.rho * eps + np.sqrt(1 - th.rho ** 2) * jax.random.normal(key, x.shape)
        return th.mu + th.phi * (x - th.mu) + th.sigma * eta


def systematic(key, log_w):
    n = log_w.shape[0]
    edges = jnp.cumsum(jax.nn.softmax(log_w))
    points = (jnp.arange(n) + jax.random.uniform(key)) / n
    return jnp.clip(jnp.searchsorted(edges, points), 0, n - 1)


class BootstrapFilter:
    def __init__(self, model, particles):
        self.model, self.particles = model, particles
        self._run = jax.jit(self._filter)

    def _filter(self, key, y):
        def step(carry, inputs):
            x, log_w = carry
            key, obs = inputs
            k_res, k_move = jax.random.split(key)
            inc = self.model.log_likelihood(x, obs)
            log_w = log_w + inc
            z = logsumexp(log_w)
            ess = jnp.exp(2 * z - logsumexp(2 * log_w))
            low = ess < 0.5 * self.particles
            pick = jnp.where(low, systematic(k_res, log_w), jnp.arange(self.particles))
            log_w = jnp.where(low, -jnp.log(self.particles * 1.0), log_w - z)
            x = self.model.propagate(k_move, x[pick], obs)
            return (x, jnp.broadcast_to(log_w, x.shape)), (z, ess)

        k0, key = jax.random.split(key)
        x0 = self.model.initial(k0, self.particles)
        w0 = jnp.full(self.particles, -jnp.log(self.particles * 1.0))
        _, (z, ess) = jax.lax.scan(step, (x0, w0), (jax.random.split(key, len(y)), y))
        return z.sum(), ess.min()

    def __call__(self, key, y):
        return self._run(key, y)


def log_prior(u):
    center = np.array([0.0, 1.8, -1.6, 0.0])
    scale = np.array([1.0, 0.5, 0.6, 0.6])
    return -0.5 * np.sum(((u - center) / scale) ** 2)


class Sampler:
    def __init__(self, y, start, seed):
        self.y = jnp.asarray(y)
        self.rng = np.random.default_rng(seed)
        self.key = jax.random.key(seed)
        self.u = np.array(start, float)
        self.chain, self.accepted = [], 0
        self.cov = np.diag([0.15, 0.15, 0.15, 0.15]) ** 2
        self.score = self.evaluate(self.u)

    def evaluate(self, u):
        self.key, sub = jax.random.split(self.key)
        model = StochasticVolatility(Theta.from_free(u))
        loglik, _ = BootstrapFilter(model, PARTICLES)(sub, self.y)
        return float(loglik) + log_prior(u)

    def step(self):
        proposal = self.rng.multivariate_normal(self.u, self.cov)
        score = self.evaluate(proposal)
        if np.log(self.rng.uniform()) < score - self.score:
            self.u, self.score = proposal, score
            self.accepted += 1
        self.chain.append(self.u.copy())
        if len(self.chain) % 12 == 0:
            self.cov = 1.2 * np.cov(np.array(self.chain).T) + 1e-3 * np.eye(4)


def main():
    true = Theta(-0.3, 0.95, 0.25, -0.5)
    y = simulate(true, T, seed=21)
    began = time.time()
    sampler = Sampler(y, start=[0.0, 1.6, -1.4, -0.2], seed=5)
    for it in range(PILOT):
        sampler.step()
    late = np.array(sampler.chain)[10:].mean(0)
    print("truth    ", true)
    print("estimate ", Theta.from_free(late))
    print(f"accepted {sampler.accepted} of {len(sampler.chain)}, {time.time() - began:.1f} s")


if __name__ == "__main__":
    main()
