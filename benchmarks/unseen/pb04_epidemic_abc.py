"""Approximate Bayesian computation (SMC-ABC) for a stochastic SEIR epidemic."""
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np


@dataclass
class Prior:
    low: np.ndarray
    high: np.ndarray

    def sample(self, rng, n):
        return rng.uniform(self.low, self.high, (n, len(self.low))).astype(np.float32)

    def inside(self, theta):
        return np.all((theta >= self.low) & (theta <= self.high), axis=-1)


class Epidemic:
    """SEIR with two age groups; daily counts, tau-leaping with Gaussian noise."""

    def __init__(self, population, days, contact):
        self.population = jnp.asarray(population, jnp.float32)
        self.days = days
        self.contact = jnp.asarray(contact, jnp.float32)

    def simulate(self, theta, key):
        beta, sigma, gamma, fade = theta.T[..., None]
        n = theta.shape[0]
        pop = jnp.broadcast_to(self.population, (n, 2))
        state = (pop - 10.0, jnp.zeros((n, 2)), jnp.full((n, 2), 10.0))

        def day(carry, inp):
            s, e, i = carry
            t, k = inp
            force = beta * jnp.exp(-fade * t) * (i / pop) @ self.contact
            noise = jax.random.normal(k, (3, n, 2))

            def leap(rate, z):
                return jnp.clip(rate + jnp.sqrt(jnp.maximum(rate, 0.0)) * z, 0.0)

            inf = jnp.minimum(leap(s * force, noise[0]), s)
            onset = jnp.minimum(leap(sigma * e, noise[1]), e)
            out = jnp.minimum(leap(gamma * i, noise[2]), i)
            return (s - inf, e + inf - onset, i + onset - out), onset

        _, cases = jax.lax.scan(day, state, (jnp.arange(self.days), jax.random.split(key, self.days)))
        return jnp.swapaxes(cases, 0, 1)


@jax.jit
def distance(sim, obs):
    a, b = jnp.log1p(sim), jnp.log1p(obs)
    weekly = lambda c: c[..., : c.shape[-2] // 7 * 7, :].reshape(*c.shape[:-2], -1, 7, 2).mean(-2)
    return jnp.sqrt(jnp.mean((weekly(a) - weekly(b)) ** 2, axis=(-1, -2)))


class AbcSmc:
    def __init__(self, model, prior, observed, size, key, seed=0):
        self.model, self.prior, self.observed = model, prior, observed
        self.size, self.key = size, key
        self.rng = np.random.default_rng(seed)
        self.calls = 0

    def propose(self, theta, weights, scale):
        out = np.empty((0, theta.shape[1]), np.float32)
        while len(out) < self.size:
            pick = self.rng.choice(len(theta), self.size, p=weights)
            cand = theta[pick] + self.rng.normal(0, 1, (self.size, theta.shape[1])) * scale
            out = np.concatenate([out, cand[self.prior.inside(cand)]])
        return out[: self.size].astype(np.float32)

    def evaluate(self, theta):
        self.calls += 1
        sim = self.model.simulate(theta, jax.random.fold_in(self.key, self.calls))
        return np.asarray(distance(sim, self.observed))

    def run(self, rounds, sweeps):
        theta = self.prior.sample(self.rng, self.size)
        dist = self.evaluate(theta)
        for r in range(rounds):
            eps = np.quantile(dist, 0.4)
            keep = theta[dist <= eps]
            weights = np.full(len(keep), 1 / len(keep))
            scale = 1.2 * keep.std(0)
            pool, pool_d = keep, dist[dist <= eps]
            for _ in range(sweeps):
                cand = self.propose(keep, weights, scale)
                d = self.evaluate(cand)
                pool = np.concatenate([pool, cand[d <= eps]])
                pool_d = np.concatenate([pool_d, d[d <= eps]])
            best = np.argsort(pool_d)[: self.size]
            theta, dist = pool[best], pool_d[best]
            yield r, eps, theta, dist


def main():
    model = Epidemic([60_000, 40_000], 140, [[1.4, 0.5], [0.5, 0.9]])
    truth = np.array([[0.55, 0.3, 0.2, 0.004]], np.float32)
    key = jax.random.key(5)
    observed = model.simulate(truth, key)[0]
    prior = Prior(np.array([0.1, 0.1, 0.05, 0.0]), np.array([1.5, 0.8, 0.6, 0.03]))
    smc = AbcSmc(model, prior, observed, 300, jax.random.key(6))
    began = time.time()
    for r, eps, theta, dist in smc.run(4, 4):
        print(f"round {r} eps {eps:.3f} mean {theta.mean(0).round(3)} {time.time() - began:.1f}s", flush=True)
    print("truth", truth[0], "simulations", smc.calls)


if __name__ == "__main__":
    main()
