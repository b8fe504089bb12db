# Hamiltonian Monte Carlo for a logistic regression with a hierarchical prior:
# several chains at once (vmap), step size adapted during warm-up, trajectory length fixed.
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

N, D, CHAINS = 1500, 16, 4
WARMUP, SAMPLES = 60, 400
TRAJECTORY = 1.2
MAX_LAG = 40

rng = np.random.default_rng(11)
X = rng.normal(size=(N, D)).astype(np.float32)
X[:, 1] = 0.8 * X[:, 0] + 0.6 * X[:, 1]
true_w = (rng.normal(size=D) * (rng.random(D) < 0.5)).astype(np.float32)
y = (rng.random(N) < 1 / (1 + np.exp(-X @ true_w + 0.3))).astype(np.float32)
X, y = jnp.asarray(X), jnp.asarray(y)


def log_density(theta):
    """theta = weights, intercept, log of the prior's scale."""
    w, b, log_tau = theta[:D], theta[D], theta[D + 1]
    logits = X @ w + b
    ll = jnp.sum(y * logits - jax.nn.softplus(logits))
    prior = -0.5 * jnp.sum((w / jnp.exp(log_tau)) ** 2) - D * log_tau
    return ll + prior - 0.5 * b**2 / 9.0 - 0.5 * log_tau**2


grad_log_density = jax.grad(log_density)


def transition(theta, key, eps, n_leap):
    k1, k2 = jax.random.split(key)
    p0 = jax.random.normal(k1, theta.shape)

    def leap(_, state):
        q, p = state
        p = p + 0.5 * eps * grad_log_density(q)
        q = q + eps * p
        p = p + 0.5 * eps * grad_log_density(q)
        return q, p

    q, p = jax.lax.fori_loop(0, n_leap, leap, (theta, p0))
    log_ratio = log_density(q) - log_density(theta) - 0.5 * (p @ p - p0 @ p0)
    log_ratio = jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)
    accept = jnp.log(jax.random.uniform(k2)) < log_ratio
    return jnp.where(accept, q, theta), jnp.minimum(1.0, jnp.exp(log_ratio))


@partial(jax.jit, static_argnames="n_leap")
def sweep(thetas, key, eps, n_leap):
    key, sub = jax.random.split(key)
    thetas, acc = jax.vmap(transition, in_axes=(0, 0, None, None))(
        thetas, jax.random.split(sub, CHAINS), eps, n_leap)
    return thetas, key, acc.mean()


@partial(jax.jit, static_argnums=(3, 4))
def draw(thetas, key, eps, n_leap, count):
    def body(carry, _):
        thetas, key = carry
        thetas, key, acc = sweep(thetas, key, eps, n_leap)
        return (thetas, key), (thetas, acc)

    (_, key), (trace, acc) = jax.lax.scan(body, (thetas, key), None, length=count)
    return trace, acc.mean()


def autocorrelation(chain, max_lag):
    """chain: draws x parameters; the correlation at lags 1 .. max_lag, averaged over the parameters."""
    centred = chain - chain.mean(0)
    var = (centred**2).mean(0)
    rhos = []
    for lag in range(1, max_lag + 1):
        cov = (centred[:-lag] * centred[lag:]).mean(0)
        rhos.append((cov / var).mean())
    return jnp.stack(rhos)


def effective_size(chain):
    rho = np.asarray(autocorrelation(chain, MAX_LAG))
    negative = np.nonzero(rho < 0.02)[0]
    cut = negative[0] if len(negative) else len(rho)
    return len(chain) / (1 + 2 * rho[:cut].sum())


def main():
    key = jax.random.key(5)
    thetas = 0.1 * jax.random.normal(key, (CHAINS, D + 2))
    # dual averaging (Hoffman and Gelman), on the host: it is a handful of floats
    mu, h_bar, log_eps_bar = np.log(0.1), 0.0, 0.0
    eps, target = 0.02, 0.8
    tic = time.perf_counter()
    for m in range(1, WARMUP + 1):
        n_leap = max(1, min(100, int(np.ceil(TRAJECTORY / eps))))
        thetas, key, acc = sweep(thetas, key, eps, n_leap)
        h_bar += (target - float(acc) - h_bar) / (m + 10)
        log_eps = mu - np.sqrt(m) / 0.25 * h_bar
        log_eps_bar = m**-0.75 * log_eps + (1 - m**-0.75) * log_eps_bar
        eps = float(np.exp(log_eps))
    eps = float(np.exp(log_eps_bar))
    n_leap = int(np.ceil(TRAJECTORY / eps))
    print(f"warm-up {time.perf_counter() - tic:.1f} s: step {eps:.4f}, {n_leap} leapfrog steps")

    tic = time.perf_counter()
    trace, acc = draw(thetas, key, eps, n_leap, SAMPLES)
    trace.block_until_ready()
    print(f"{SAMPLES} x {CHAINS} draws {time.perf_counter() - tic:.1f} s, acceptance {float(acc):.2f}")

    for c in range(CHAINS):
        print(f"chain {c}: effective size {effective_size(trace[:, c, :D]):.0f}")
    mean = np.asarray(trace[:, :, :D].mean((0, 1)))
    print("error of the posterior mean", np.abs(mean - true_w).mean().round(3))


main()
