"""Hierarchical logistic regression of treatment response (clinics within regions).

Hamiltonian Monte Carlo with jittered trajectory lengths: a fixed number of
leapfrog steps resonates with the posterior's periodic directions.
"""
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Data(NamedTuple):
    x: jax.Array          # patient covariates
    clinic: jax.Array
    region_of: jax.Array  # clinic -> region
    y: jax.Array


def synth(seed, n_patients=3000, n_clinics=60, n_regions=6, n_cov=5):
    rng = np.random.default_rng(seed)
    region_of = rng.integers(0, n_regions, n_clinics)
    beta = rng.normal(0, 0.6, n_cov)
    region = rng.normal(-0.3, 0.7, n_regions)
    clinic = region[region_of] + rng.normal(0, 0.4, n_clinics)
    x = rng.standard_normal((n_patients, n_cov))
    which = rng.integers(0, n_clinics, n_patients)
    p = 1 / (1 + np.exp(-(x @ beta + clinic[which])))
    y = rng.random(n_patients) < p
    data = Data(jnp.asarray(x, jnp.float32), jnp.asarray(which), jnp.asarray(region_of),
                jnp.asarray(y, jnp.float32))
    return data, beta


def initial(data):
    n_clinics, n_regions = data.region_of.shape[0], int(data.region_of.max()) + 1
    return {"beta": jnp.zeros(data.x.shape[1]), "mu": jnp.float32(0.0),
            "log_tau_region": jnp.float32(-0.5), "log_tau_clinic": jnp.float32(-0.5),
            "z_region": jnp.zeros(n_regions), "z_clinic": jnp.zeros(n_clinics)}


def log_posterior(q, data):
    """Non-centred parametrisation, weakly informative priors."""
    region = q["mu"] + jnp.exp(q["log_tau_region"]) * q["z_region"]
    clinic = region[data.region_of] + jnp.exp(q["log_tau_clinic"]) * q["z_clinic"]
    eta = data.x @ q["beta"] + clinic[data.clinic]
    loglik = jnp.sum(data.y * eta - jax.nn.softplus(eta))
    prior = -0.5 * (jnp.sum(q["beta"] ** 2) / 4.0 + q["mu"] ** 2 / 4.0
                    + jnp.sum(q["z_region"] ** 2) + jnp.sum(q["z_clinic"] ** 2)
                    + (q["log_tau_region"] + 0.5) ** 2 + (q["log_tau_clinic"] + 0.5) ** 2)
    return loglik + prior


def axpy(a, x, y):
    return jax.tree.map(lambda u, v: a * u + v, x, y)


def kinetic(p):
    return 0.5 * sum(jnp.sum(v ** 2) for v in jax.tree.leaves(p))


@partial(jax.jit, static_argnames="n_leapfrog")
def hmc_transition(key, q, logp, step_size, n_leapfrog, data):
    key_mom, key_acc = jax.random.split(key)
    leaves, tree = jax.tree.flatten(q)
    keys = jax.random.split(key_mom, len(leaves))
    p0 = jax.tree.unflatten(tree, [jax.random.normal(k, v.shape) for k, v in zip(keys, leaves)])
    grad = jax.grad(log_posterior)
    q_new, p = q, axpy(0.5 * step_size, grad(q, data), p0)
    for i in range(n_leapfrog):
        q_new = axpy(step_size, p, q_new)
        scale = step_size if i < n_leapfrog - 1 else 0.5 * step_size
        p = axpy(scale, grad(q_new, data), p)
    logp_new = log_posterior(q_new, data)
    log_ratio = (logp_new - kinetic(p)) - (logp - kinetic(p0))
    accept_prob = jnp.minimum(1.0, jnp.exp(jnp.nan_to_num(log_ratio, nan=-jnp.inf)))
    accept = jax.random.uniform(key_acc) < accept_prob
    q = jax.tree.map(lambda a, b: jnp.where(accept, a, b), q_new, q)
    return q, jnp.where(accept, logp_new, logp), accept_prob


@jax.jit
def adapt(log_eps, log_eps_bar, h_bar, m, accept_prob, target=0.8):
    """Dual averaging (Hoffman & Gelman 2014)."""
    eta = 1.0 / (m + 10.0)
    h_bar = (1 - eta) * h_bar + eta * (target - accept_prob)
    log_eps = jnp.log(0.2) - jnp.sqrt(m) / 0.05 * h_bar
    w = m ** -0.75
    return log_eps, w * log_eps + (1 - w) * log_eps_bar, h_bar


def sample(seed, data, n_warmup=300, n_samples=700, mean_steps=6):
    rng = np.random.default_rng(seed)
    q = initial(data)
    logp = log_posterior(q, data)
    log_eps, log_eps_bar, h_bar = jnp.log(0.05), jnp.float32(0.0), jnp.float32(0.0)
    keys = list(jax.random.split(jax.random.key(seed), n_warmup + n_samples))
    draws, accepts = [], []
    for it, key in enumerate(keys):
        n_leapfrog = int(rng.integers(mean_steps // 2, 3 * mean_steps // 2 + 1))
        step_size = jnp.exp(log_eps if it < n_warmup else log_eps_bar)
        q, logp, prob = hmc_transition(key, q, logp, step_size, n_leapfrog, data)
        if it < n_warmup:
            m = jnp.float32(it + 1)
            log_eps, log_eps_bar, h_bar = adapt(log_eps, log_eps_bar, h_bar, m, prob)
        else:
            draws.append(q)
            accepts.append(prob)
        if it % 250 == 249:
            print(f"iteration {it + 1:4d}  log posterior {float(logp):9.2f}  step {float(step_size):.4f}")
    return jax.tree.map(lambda *v: np.stack(v), *draws), float(np.mean(accepts))


def main():
    data, beta = synth(3)
    draws, accept = sample(1, data)
    print(f"mean acceptance {accept:.3f}")
    for j, b in enumerate(beta):
        lo, mid, hi = np.quantile(draws["beta"][:, j], [0.05, 0.5, 0.95])
        print(f"beta[{j}] {mid:6.3f} [{lo:6.3f}, {hi:6.3f}]  true {b:6.3f}")
    for name in ("log_tau_region", "log_tau_clinic"):
        print(f"{name[4:]}: {np.exp(draws[name]).mean():.3f}")


if __name__ == "__main__":
    main()
