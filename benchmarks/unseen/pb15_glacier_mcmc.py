"""Adaptive Metropolis for a glacier flow-line model; several chains run together."""
import sys
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

POINTS, CHAINS, PARAMS = 24, 8, 4


class Chain(NamedTuple):
    theta: jax.Array
    logp: jax.Array
    mean: jax.Array
    cov: jax.Array
    log_scale: jax.Array
    accepted: jax.Array


def flow_line(theta, x):
    """Surface velocity along the flow line for log fluidity, slope, sliding, drag."""
    fluid, slope, slide, drag = theta
    thick = 220 * jnp.sqrt(jnp.clip(1.05 - x, 0.01)) * (1 + 0.1 * slope * x)
    stress = 9.81 * 0.9 * thick * (0.05 + 0.01 * slope) / (1 + jnp.exp(drag) * x)
    deform = jnp.exp(fluid) * 1e-6 * stress ** 3 * thick / 50
    return deform + jnp.exp(slide) * stress * 0.05


def log_posterior(theta, x, obs, sigma):
    misfit = (flow_line(theta, x) - obs) / sigma
    return -0.5 * (misfit ** 2).sum() - 0.5 * (theta ** 2).sum()


class Progress:
    def __init__(self, total, width=30, stream=sys.stderr):
        self.total, self.width, self.stream, self.shown = total, width, stream, -1

    def update(self, i, rate):
        done = int((i + 1) * self.width // self.total)
        if done != self.shown:
            self.shown = done
            self.stream.write(f"\r[{'#' * done}{'.' * (self.width - done)}] acceptance {float(rate):.2f}")


def kernel(chain, inputs, x, obs, sigma):
    i, key = inputs
    ka, kb = jax.random.split(key)
    root = jnp.linalg.cholesky(chain.cov + 1e-6 * jnp.eye(PARAMS))
    prop = chain.theta + jnp.exp(chain.log_scale) * root @ jax.random.normal(ka, (PARAMS,))
    logp = log_posterior(prop, x, obs, sigma)
    ratio = jnp.exp(jnp.minimum(0.0, logp - chain.logp))
    take = jax.random.uniform(kb) < ratio
    theta = jnp.where(take, prop, chain.theta)
    gain = 1.0 / (i + 10.0) ** 0.6
    diff = theta - chain.mean
    return Chain(theta, jnp.where(take, logp, chain.logp), chain.mean + gain * diff,
                 chain.cov + gain * (jnp.outer(diff, diff) - chain.cov),
                 chain.log_scale + gain * (ratio - 0.3), chain.accepted + take)


class Sampler:
    def __init__(self, x, obs, sigma, length):
        self.x, self.obs, self.sigma, self.length = x, obs, sigma, length
        self.progress = Progress(length)
        self.run_block = jax.jit(self._block)

    def init(self, key):
        theta = 0.3 * jax.random.normal(key, (CHAINS, PARAMS))
        logp = jax.vmap(lambda t: log_posterior(t, self.x, self.obs, self.sigma))(theta)
        eye = jnp.broadcast_to(0.05 * jnp.eye(PARAMS), (CHAINS, PARAMS, PARAMS))
        return Chain(theta, logp, theta, eye, jnp.zeros(CHAINS), jnp.zeros(CHAINS))

    def _block(self, chains, key, offset):
        step = jax.vmap(lambda c, i, k: kernel(c, (i, k), self.x, self.obs, self.sigma), in_axes=(0, None, 0))

        def body(c, inp):
            i, k = inp
            c = step(c, i, jax.random.split(k, CHAINS))
            jax.debug.callback(self.progress.update, i, c.accepted.mean() / (i + 1))
            return c, c.theta

        n = self.length // 4
        return jax.lax.scan(body, chains, (offset + jnp.arange(n), jax.random.split(key, n)))

    def run(self, key):
        chains, draws = self.init(key), []
        for b in range(4):
            chains, theta = self.run_block(chains, jax.random.fold_in(key, b), b * (self.length // 4))
            draws.append(np.asarray(theta))
        jax.effects_barrier()
        return chains, np.concatenate(draws)


def r_hat(draws):
    n = len(draws)
    within = draws.var(0, ddof=1).mean(0)
    between = n * draws.mean(0).var(0, ddof=1)
    return np.sqrt(((n - 1) / n * within + between / n) / within)


def main():
    x = jnp.linspace(0.0, 0.95, POINTS)
    truth = jnp.array([0.4, -0.3, 0.2, -0.5])
    sigma = 2.0
    obs = flow_line(truth, x) + sigma * jax.random.normal(jax.random.key(3), x.shape)
    sampler = Sampler(x, obs, sigma, 12_000)
    began = time.time()
    chains, draws = sampler.run(jax.random.key(0))
    kept = draws[len(draws) // 2:]
    print(f"\n{time.time() - began:.1f}s acceptance {np.asarray(chains.accepted).mean() / len(draws):.3f}")
    print("mean", kept.mean((0, 1)).round(3), "truth", np.asarray(truth), "r-hat", r_hat(kept).round(3))


if __name__ == "__main__":
    main()
