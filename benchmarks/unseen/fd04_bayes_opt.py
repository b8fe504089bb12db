"""Bayesian optimisation of a noisy chemistry-like yield surface with a Gaussian process.

Every round: fit the kernel's hyperparameters by Adam on the marginal likelihood, maximise
expected improvement over random candidates, run the "experiment", add the point.
"""
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.stats import norm

DIM = 3
N_INIT, N_ROUNDS = 6, 16
FIT_STEPS, N_CANDIDATES = 40, 512


class Hyper(NamedTuple):
    log_length: jax.Array
    log_amp: jax.Array
    log_noise: jax.Array


def experiment(x, rng):
    """Measured yield (percent) at temperature, concentration and time, each in [0, 1]."""
    peak = 62 * np.exp(-8 * ((x[0] - 0.63) ** 2 + 1.5 * (x[1] - 0.34) ** 2))
    side = 35 * np.exp(-14 * ((x[0] - 0.15) ** 2 + (x[1] - 0.80) ** 2))
    return (peak + side) * (1 - 0.6 * (x[2] - 0.55) ** 2) + rng.normal(0, 0.4)


def matern52(a, b, hyper):
    scaled = (a[:, None, :] - b[None, :, :]) * jnp.exp(-hyper.log_length)
    r = jnp.sqrt(5.0 * jnp.sum(scaled ** 2, -1) + 1e-12)
    return jnp.exp(2 * hyper.log_amp) * (1 + r + r ** 2 / 3) * jnp.exp(-r)


def gram_cholesky(x, hyper):
    noise = jnp.exp(2 * hyper.log_noise) + 1e-5
    return jnp.linalg.cholesky(matern52(x, x, hyper) + noise * jnp.eye(len(x)))


def neg_log_marginal(hyper, x, y):
    chol = gram_cholesky(x, hyper)
    alpha = cho_solve((chol, True), y)
    fit = 0.5 * y @ alpha + jnp.log(jnp.diag(chol)).sum()
    prior = 0.5 * (jnp.sum((hyper.log_length + 1.0) ** 2) + hyper.log_amp ** 2
                   + 0.25 * (hyper.log_noise + 3.0) ** 2)
    return fit + prior


adam = optax.adam(0.08)


@jax.jit
def fit(hyper, x, y):
    """FIT_STEPS of Adam from the last round's hyperparameters."""
    def step(carry, _):
        hyper, state = carry
        loss, grad = jax.value_and_grad(neg_log_marginal)(hyper, x, y)
        updates, state = adam.update(grad, state)
        return (optax.apply_updates(hyper, updates), state), loss

    (hyper, _), losses = jax.lax.scan(step, (hyper, adam.init(hyper)), None, length=FIT_STEPS)
    return hyper, losses[-1]


@jax.jit
def expected_improvement(hyper, x, y, candidates, best):
    chol = gram_cholesky(x, hyper)
    cross = matern52(x, candidates, hyper)
    mean = cross.T @ cho_solve((chol, True), y)
    v = solve_triangular(chol, cross, lower=True)
    std = jnp.sqrt(jnp.maximum(jnp.exp(2 * hyper.log_amp) - jnp.sum(v ** 2, 0), 1e-9))
    gain = (mean - best) / std
    return std * (gain * norm.cdf(gain) + norm.pdf(gain))


def standardise(values):
    values = np.asarray(values)
    centre, scale = values.mean(), values.std() + 1e-9
    return (values - centre) / scale


def main():
    rng = np.random.default_rng(3)
    points = [rng.random(DIM) for _ in range(N_INIT)]
    yields = [experiment(p, rng) for p in points]
    hyper = Hyper(jnp.full(DIM, -1.0), jnp.array(0.0), jnp.array(-3.0))
    started = time.perf_counter()

    for round_ in range(N_ROUNDS):
        x = jnp.asarray(np.stack(points), jnp.float32)
        y = jnp.asarray(standardise(yields), jnp.float32)
        hyper, loss = fit(hyper, x, y)

        incumbent = points[int(np.argmax(yields))]
        candidates = np.vstack([rng.random((N_CANDIDATES // 2, DIM)),
                                np.clip(incumbent + rng.normal(0, 0.07, (N_CANDIDATES // 2, DIM)), 0, 1)])
        gain = expected_improvement(hyper, x, y, jnp.asarray(candidates, jnp.float32), y.max())
        chosen = candidates[int(jnp.argmax(gain))]

        points.append(chosen)
        yields.append(experiment(chosen, rng))
        if round_ % 4 == 3:
            lengths = " ".join(f"{v:.2f}" for v in np.exp(np.asarray(hyper.log_length)))
            print(f"round {round_ + 1:2d}: yield {yields[-1]:.1f}, best {max(yields):.1f}, "
                  f"nlml {float(loss):.2f}, lengths {lengths}")

    best = points[int(np.argmax(yields))]
    print(f"best yield {max(yields):.1f} at {np.round(best, 2)} after {len(yields)} experiments "
          f"({time.perf_counter() - started:.1f} s)")


if __name__ == "__main__":
    main()
