"""Adaptive Metropolis (Haario 2001) for a stochastic-observation SEIR model: the
contact rate, incubation and recovery times, and the reporting fraction."""
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

POP = 50_000.0
DAYS = 90
SUB = 8
NAMES = ["beta", "sigma", "gamma", "report"]
PRIOR_MEAN = jnp.log(jnp.array([0.5, 0.25, 0.15, 0.4]))
PRIOR_SD = jnp.array([0.5, 0.4, 0.4, 0.5])


def seir(theta):
    beta, sigma, gamma, report = jnp.exp(theta)
    h = 1.0 / SUB

    def sub_step(state, _):
        s, e, i, c = state
        inf = beta * s * i / POP
        onset = sigma * e
        return (s - h * inf, e + h * (inf - onset), i + h * (onset - gamma * i), c + h * onset), None

    def day(state, _):
        before = state[3]
        state, _ = jax.lax.scan(sub_step, state, None, length=SUB)
        return state, report * (state[3] - before)

    start = (POP - 20.0, 10.0, 10.0, 0.0)
    _, cases = jax.lax.scan(day, start, None, length=DAYS)
    return jnp.maximum(cases, 1e-3)


@jax.jit
def log_posterior(theta, observed):
    lam = seir(theta)
    r = 15.0        # negative binomial dispersion
    ll = observed * jnp.log(lam / (lam + r)) - r * jnp.log1p(lam / r)
    prior = -0.5 * jnp.sum(((theta - PRIOR_MEAN) / PRIOR_SD) ** 2)
    return ll.sum() + prior


@jax.jit
def propose(key, theta, cov):
    d = theta.shape[0]
    scaled = 2.38 ** 2 / d * cov + 1e-7 * jnp.eye(d)
    return theta + jnp.linalg.cholesky(scaled) @ jax.random.normal(key, (d,))


class History:
    """Everything visited so far; hands out the empirical covariance."""

    def __init__(self, first, initial_cov, warm=60):
        self.draws = first[None]
        self.initial_cov, self.warm = initial_cov, warm

    def record(self, theta):
        self.draws = jnp.concatenate([self.draws, theta[None]])

    def covariance(self):
        n = self.draws.shape[0]
        if n < self.warm:
            return self.initial_cov
        dev = self.draws - self.draws.mean(0)
        return dev.T @ dev / (n - 1)


@partial(jax.jit, donate_argnums=(0,))
def accept(current, candidate, u):
    (theta, lp), (theta_new, lp_new) = current, candidate
    take = jnp.log(u) < lp_new - lp
    return (jnp.where(take, theta_new, theta), jnp.where(take, lp_new, lp)), take


def sample(observed, key, n_iter):
    theta = PRIOR_MEAN + 0.05
    history = History(theta, jnp.diag(jnp.array([0.03, 0.06, 0.06, 0.06]) ** 2))
    current = (theta, log_posterior(theta, observed))
    taken = []
    for it in range(n_iter):
        key, k_prop, k_acc = jax.random.split(key, 3)
        theta_new = propose(k_prop, current[0], history.covariance())
        candidate = (theta_new, log_posterior(theta_new, observed))
        current, ok = accept(current, candidate, jax.random.uniform(k_acc))
        history.record(current[0])
        taken.append(ok)
    return np.asarray(history.draws), np.mean([bool(t) for t in taken])


def main():
    rng = np.random.default_rng(8)
    truth = np.array([0.62, 0.22, 0.18, 0.35])
    lam = np.asarray(jax.jit(seir)(jnp.log(jnp.asarray(truth))))
    observed = jnp.asarray(rng.negative_binomial(15, 15 / (15 + lam)).astype(np.float32))
    draws, rate = sample(observed, jax.random.key(0), n_iter=260)
    kept = np.exp(draws[len(draws) // 2:])
    print(f"acceptance {rate:.2f}")
    for name, t, col in zip(NAMES, truth, kept.T):
        print(f"{name:>7s}: {col.mean():.3f} +- {col.std():.3f}   (truth {t:.3f})")


if __name__ == "__main__":
    main()
