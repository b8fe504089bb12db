"""Negative-binomial regression of motor-insurance claim counts, sampled by adaptive random-walk Metropolis."""
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

N_POLICIES, N_FEATURES = 3000, 6
WARMUP, DRAWS = 1500, 3500


class Portfolio(NamedTuple):
    design: jax.Array
    exposure: jax.Array
    claims: jax.Array


def simulate_portfolio(seed):
    rng = np.random.default_rng(seed)
    x = np.concatenate([np.ones((N_POLICIES, 1)), rng.normal(size=(N_POLICIES, N_FEATURES - 1))], 1)
    beta = np.array([-0.5, 0.3, -0.2, 0.15, 0.0, 0.25])
    exposure = rng.uniform(0.3, 1.0, N_POLICIES)
    mu = exposure * np.exp(x @ beta)
    r = 1.8
    claims = rng.poisson(rng.gamma(r, mu / r))
    return Portfolio(*(jnp.asarray(a, jnp.float32) for a in (x, exposure, claims))), beta


def _lgamma_host(x):
    return scipy.special.gammaln(np.asarray(x)).astype(np.float32)


def lgamma(x):
    return jax.pure_callback(_lgamma_host, jax.ShapeDtypeStruct(jnp.shape(x), jnp.float32), x)


def log_likelihood(theta, data: Portfolio):
    beta, r = theta[:-1], jnp.exp(theta[-1])
    mu = data.exposure * jnp.exp(data.design @ beta)
    terms = (lgamma(data.claims + r) - lgamma(data.claims + 1.0)
             + data.claims * (jnp.log(mu) - jnp.log(mu + r)) + r * (jnp.log(r) - jnp.log(mu + r)))
    return jnp.sum(terms) - data.claims.shape[0] * lgamma(r)


@jax.jit
def log_posterior(theta, data: Portfolio):
    prior = -0.5 * jnp.sum((theta / 2.0) ** 2)
    return log_likelihood(theta, data) + prior


@jax.jit
def propose(key, theta, scale, chol):
    return theta + scale * chol @ jax.random.normal(key, theta.shape)


class Adaptation:
    """Tunes the scale of the proposal to an acceptance rate of about 0.3 and learns its covariance once."""

    def __init__(self, dim):
        self.log_scale = float(np.log(2.4 / dim**0.5))
        self.chol = jnp.eye(dim) * 0.02
        self.count = 0

    @property
    def scale(self):
        return np.float32(np.exp(self.log_scale))

    def observe(self, accepted):
        self.count += 1
        self.log_scale += (float(accepted) - 0.3) / self.count**0.6

    def learn(self, samples):
        cov = np.cov(np.asarray(samples), rowvar=False) + 1e-6 * np.eye(samples[0].size)
        self.chol = jnp.asarray(np.linalg.cholesky(cov), jnp.float32)
        self.log_scale, self.count = float(np.log(2.4 / len(cov) ** 0.5)), 50


def sample_chain(key, data, warmup, draws):
    theta = jnp.zeros(N_FEATURES + 1)
    current = log_posterior(theta, data)
    adapt = Adaptation(theta.size)
    rng = np.random.default_rng(int(jax.random.randint(key, (), 0, 1 << 30)))
    keys = jax.random.split(key, warmup + draws)
    chain, accepted_total = [], 0
    for i, step_key in enumerate(keys):
        candidate = propose(step_key, theta, adapt.scale, adapt.chol)
        value = log_posterior(candidate, data)
        accepted = bool(np.log(rng.random()) < value - current)
        if accepted:
            theta, current = candidate, value
        chain.append(theta)
        if i < warmup:
            adapt.observe(accepted)
            if i == warmup // 2:
                adapt.learn(jax.device_get(chain[warmup // 4:]))
        else:
            accepted_total += accepted
    return np.stack(jax.device_get(chain[warmup:])), accepted_total / draws


def effective_size(x, max_lag=200):
    x = x - x.mean()
    n = len(x)
    f = np.fft.rfft(x, 2 * n)
    acf = np.fft.irfft(f * np.conj(f))[:max_lag]
    acf /= acf[0]
    cut = np.argmax(acf < 0.05) or max_lag
    return n / (1 + 2 * acf[1:cut].sum())


def main():
    data, beta_true = simulate_portfolio(17)
    start = time.perf_counter()
    chain, rate = sample_chain(jax.random.key(1), data, WARMUP, DRAWS)
    print(f"{len(chain)} draws in {time.perf_counter() - start:.1f} s, acceptance {rate:.2f}")
    names = ["intercept", "age", "power", "region", "colour", "mileage"]
    for j, name in enumerate(names):
        c = chain[:, j]
        print(f"{name:>10s}  true {beta_true[j]:+.2f}  mean {c.mean():+.3f}  sd {c.std():.3f}  ess {effective_size(c):6.0f}")
    r = np.exp(chain[:, -1])
    print(f"dispersion  true 1.80   mean {r.mean():.2f}  sd {r.std():.2f}")


if __name__ == "__main__":
    main()
