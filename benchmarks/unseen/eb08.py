"""Approximate Bayesian computation (SMC) for a stochastic SEIR epidemic.

Populations of particles (beta, sigma, gamma, first cases) go through decreasing
tolerances; particles are simulated by tau leaping in one vectorised call.
"""
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

PEOPLE = 20_000
DAYS = 100
SUBSTEPS = 2
PARTICLES = 512
LOW = np.array([0.1, 0.1, 0.05, 1.0], np.float32)
HIGH = np.array([1.2, 0.8, 0.5, 60.0], np.float32)


def leap(state, key, theta):
    s, e, i, r = state
    beta, sigma, gamma, _ = theta
    k = jax.random.split(key, 3)
    dt = 1.0 / SUBSTEPS

    def draw(key, pool, rate):
        mean = pool * (1 - jnp.exp(-rate * dt))
        spread = jnp.sqrt(jnp.maximum(mean * jnp.exp(-rate * dt), 0.0))
        return jnp.clip(jnp.round(mean + spread * jax.random.normal(key)), 0.0, pool)

    infected = draw(k[0], s, beta * i / PEOPLE)
    onset = draw(k[1], e, sigma)
    removed = draw(k[2], i, gamma)
    return (s - infected, e + infected - onset, i + onset - removed, r + removed), onset


def epidemic(theta, key):
    first = jnp.round(theta[3])
    state = (PEOPLE - first, first * 0.0, first, first * 0.0)

    def day(state, key):
        state, onsets = jax.lax.scan(lambda s, k: leap(s, k, theta), state,
                                     jax.random.split(key, SUBSTEPS))
        return state, onsets.sum()

    _, cases = jax.lax.scan(day, state, jax.random.split(key, DAYS))
    return cases


def summaries(cases):
    weekly = cases[:DAYS // 7 * 7].reshape(-1, 7).sum(-1)
    return jnp.sqrt(weekly)


@jax.jit
def simulate_and_compare(thetas, keys, observed):
    target = summaries(observed)
    cases = jax.vmap(epidemic)(thetas, keys)
    return jnp.sqrt(((jax.vmap(summaries)(cases) - target) ** 2).mean(-1))


def perturb(particles, weights, scale, key):
    """Kernel move: resample, then jitter with the population's covariance."""
    k1, k2 = jax.random.split(key)
    index = jax.random.choice(k1, len(particles), (PARTICLES,), p=weights)
    noise = jax.random.normal(k2, (PARTICLES, 4)) * scale
    return particles[index] + noise


def log_kernel(new, old, scale):
    z = (new[:, None] - old[None]) / scale
    return -0.5 * (z ** 2).sum(-1) - jnp.log(scale).sum()


class Population:
    def __init__(self, key):
        u = jax.random.uniform(key, (PARTICLES, 4))
        self.theta = LOW + u * (HIGH - LOW)
        self.weights = jnp.full(PARTICLES, 1 / PARTICLES)
        self.tolerance = np.inf

    def scale(self):
        mean = self.weights @ self.theta
        return jnp.sqrt(2 * (self.weights @ (self.theta - mean) ** 2)) + 1e-4

    def describe(self):
        mean = np.asarray(self.weights @ self.theta)
        ess = float(1 / (self.weights ** 2).sum())
        return f"beta {mean[0]:.3f} sigma {mean[1]:.3f} gamma {mean[2]:.3f} seeds {mean[3]:.1f} ess {ess:.0f}"


def next_generation(pop, tolerance, observed, key):
    """Draw proposals until every slot holds a particle within the tolerance."""
    scale = pop.scale()
    kept, count, tried = [], 0, 0
    while count < PARTICLES and tried < 40 * PARTICLES:
        key, k1, k2 = jax.random.split(key, 3)
        prop = perturb(pop.theta, pop.weights, scale, k1)
        dist = simulate_and_compare(prop, jax.random.split(k2, PARTICLES), observed)
        ok = (dist < tolerance) & (prop > LOW).all(-1) & (prop < HIGH).all(-1)
        good = prop[ok]
        kept.append(good)
        count += len(good)
        tried += PARTICLES
    theta = jnp.concatenate(kept)[:PARTICLES]
    logw = -jax.nn.logsumexp(log_kernel(theta, pop.theta, scale) + jnp.log(pop.weights), axis=1)
    pop.theta, pop.weights, pop.tolerance = theta, jax.nn.softmax(logw), tolerance
    return tried


def main():
    start = time.perf_counter()
    truth = jnp.array([0.45, 0.3, 0.18, 12.0])
    key = jax.random.key(4)
    key, k0, k1 = jax.random.split(key, 3)
    observed = jax.jit(epidemic)(truth, k0)
    pop = Population(k1)
    for g, tolerance in enumerate((40.0, 28.0, 20.0, 14.0, 10.0, 7.5)):
        key, sub = jax.random.split(key)
        tried = next_generation(pop, tolerance, observed, sub)
        print(f"gen {g} tol {tolerance:4.1f} tried {tried:6d} {pop.describe()} "
              f"({time.perf_counter() - start:.1f} s)")
    print("truth:", np.asarray(truth))


if __name__ == "__main__":
    main()
