"""Basement relief of a sedimentary basin from Bouguer anomalies (MAP inversion).

The basin is a row of vertical prisms with depth-dependent density contrast; the noise
of the anomaly map is spatially correlated (terrain correction errors), so the misfit
uses the full data covariance.
"""
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

G = 6.674e-11 * 1e5 * 1e3          # mGal, with lengths in km and density in kg/m3
N_STATIONS = 640
N_PRISMS = 48
LENGTH = 60.0                      # km


class Survey(NamedTuple):
    x: jax.Array                   # station positions along the profile
    y: jax.Array                   # small offsets from it
    anomaly: jax.Array
    sigma: jax.Array               # noise level of each station


class NoiseModel(NamedTuple):
    correlation_length: float
    nugget: float


class Basin(NamedTuple):
    log_depth: jax.Array
    trend: jax.Array               # regional offset and slope


EDGES = jnp.linspace(0.0, LENGTH, N_PRISMS + 1)


def density_contrast(z):
    return -480.0 * jnp.exp(-z / 4.5)


def slab_attraction(x, left, right, top, bottom):
    """2-D rectangle approximated by its thin-sheet angle integral."""
    z = 0.5 * (top + bottom)
    return 2.0 * G * (bottom - top) * (jnp.arctan2(right - x, z) - jnp.arctan2(left - x, z))


def predict(basin, survey, n_slabs=4):
    depth = jnp.exp(basin.log_depth)
    fractions = jnp.linspace(0.0, 1.0, n_slabs + 1)
    top, bottom = depth * fractions[:-1, None], depth * fractions[1:, None]
    rho = density_contrast(0.5 * (top + bottom))
    g = slab_attraction(survey.x[:, None, None], EDGES[:-1], EDGES[1:], top, bottom) * rho
    regional = basin.trend[0] + basin.trend[1] * (survey.x / LENGTH - 0.5)
    return g.sum(axis=(1, 2)) + regional


def data_covariance(survey, noise):
    dx = survey.x[:, None] - survey.x[None, :]
    dy = survey.y[:, None] - survey.y[None, :]
    corr = jnp.exp(-jnp.sqrt(dx ** 2 + dy ** 2 + 1e-12) / noise.correlation_length)
    corr = (1.0 - noise.nugget) * corr + noise.nugget * jnp.eye(survey.x.size)
    return corr * survey.sigma[:, None] * survey.sigma[None, :]


def gaussian_misfit(residual, survey, noise):
    chol = jnp.linalg.cholesky(data_covariance(survey, noise))
    white = jax.scipy.linalg.solve_triangular(chol, residual, lower=True)
    return 0.5 * jnp.vdot(white, white)


def prior(basin, smooth):
    rough = jnp.diff(basin.log_depth, n=2)
    return smooth * jnp.vdot(rough, rough) + 1e-3 * jnp.vdot(basin.trend, basin.trend)


def negative_log_posterior(basin, survey, noise, smooth):
    residual = survey.anomaly - predict(basin, survey)
    return gaussian_misfit(residual, survey, noise) + prior(basin, smooth)


def synthetic_survey(noise, seed=0):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(1.0, LENGTH - 1.0, N_STATIONS)).astype(np.float32)
    y = rng.normal(0.0, 0.4, N_STATIONS).astype(np.float32)
    sigma = rng.uniform(0.3, 0.9, N_STATIONS).astype(np.float32)
    survey = Survey(jnp.asarray(x), jnp.asarray(y), jnp.zeros(N_STATIONS), jnp.asarray(sigma))
    s = (np.arange(N_PRISMS) + 0.5) / N_PRISMS
    depth = 0.3 + 3.2 * np.sin(np.pi * s) ** 2 + 1.1 * np.exp(-((s - 0.7) / 0.08) ** 2)
    truth = Basin(jnp.asarray(np.log(depth), jnp.float32), jnp.asarray([-4.0, 3.0]))
    cov = np.asarray(data_covariance(survey, noise), np.float64)
    error = np.linalg.cholesky(cov) @ rng.normal(size=N_STATIONS)
    anomaly = predict(truth, survey) + jnp.asarray(error, jnp.float32)
    return survey._replace(anomaly=anomaly), truth


def invert(survey, noise, smooth, steps, report=200):
    start = Basin(jnp.zeros(N_PRISMS), jnp.zeros(2))
    tx = optax.adam(optax.exponential_decay(0.08, 200, 0.6))

    @jax.jit
    def advance(basin, opt, survey, noise, smooth):
        value, grad = jax.value_and_grad(negative_log_posterior)(
            basin, survey, noise, smooth)
        update, opt = tx.update(grad, opt, basin)
        return optax.apply_updates(basin, update), opt, value

    basin, opt = start, tx.init(start)
    t0 = time.time()
    for n in range(1, steps + 1):
        basin, opt, value = advance(basin, opt, survey, noise, smooth)
        if n % report == 0:
            print(f"  step {n}: {float(value):.2f}  [{time.time() - t0:.1f}s]")
    return basin, float(value)


def main():
    noise = NoiseModel(correlation_length=2.5, nugget=0.2)
    survey, truth = synthetic_survey(noise)
    basin, value = invert(survey, noise, smooth=20.0, steps=1400)
    error = jnp.exp(basin.log_depth) - jnp.exp(truth.log_depth)
    print(f"objective {value:.2f}; depth error rms "
          f"{float(jnp.sqrt(jnp.mean(error ** 2))):.3f} km; trend {np.asarray(basin.trend)}")


if __name__ == "__main__":
    main()
