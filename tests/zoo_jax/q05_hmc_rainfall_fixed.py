"""Hierarchical regression of station rainfall, sampled with Hamiltonian Monte Carlo (plain jax)."""
import dataclasses
import functools
import math
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Kernel:
    """How a proposal is made, but for the step size."""
    leapfrog: int = 12
    jitter: float = 0.1


@dataclasses.dataclass(frozen=True)
class Plan:
    warmup: int = 160
    draws: int = 1500
    adapt_every: int = 20
    target: float = 0.8


def simulate(rng, stations=14, years=25):
    height = rng.uniform(0, 2, stations)
    base = 1.0 + 0.6 * height + 0.25 * rng.standard_normal(stations)
    trend = -0.1 + 0.05 * rng.standard_normal(stations)
    year = np.linspace(-1, 1, years)
    mean = base[:, None] + trend[:, None] * year
    log_rain = mean + 0.3 * rng.standard_normal((stations, years))
    return {"height": height.astype(np.float32), "year": year.astype(np.float32),
            "log_rain": log_rain.astype(np.float32)}


def initial(key, stations):
    k1, k2 = jax.random.split(key)
    return {
        "alpha": jnp.array([0.5, 0.1], jnp.float32),
        "log_tau": jnp.zeros(2),
        "log_sigma": jnp.zeros(()),
        "z_base": 0.1 * jax.random.normal(k1, (stations,)),
        "z_trend": 0.1 * jax.random.normal(k2, (stations,)),
        "mu_trend": jnp.zeros(()),
    }


def log_density(q, data):
    tau = jnp.exp(q["log_tau"])
    sigma = jnp.exp(q["log_sigma"])
    base = q["alpha"][0] + q["alpha"][1] * data["height"] + tau[0] * q["z_base"]
    trend = q["mu_trend"] + tau[1] * q["z_trend"]
    mean = base[:, None] + trend[:, None] * data["year"]
    resid = (data["log_rain"] - mean) / sigma
    lp = -0.5 * jnp.sum(resid**2) - resid.size * q["log_sigma"]
    lp += -0.5 * (jnp.sum(q["z_base"] ** 2) + jnp.sum(q["z_trend"] ** 2))
    lp += -0.5 * (jnp.sum(q["alpha"] ** 2) / 4 + q["mu_trend"] ** 2)
    lp += jnp.sum(-0.5 * (tau / 0.5) ** 2 + q["log_tau"]) - 0.5 * sigma**2 + q["log_sigma"]
    return lp


def _axpy(a, x, y):
    return jax.tree.map(lambda u, v: v + a * u, x, y)


@functools.partial(jax.jit, static_argnames="kernel")
def propose(key, q, data, step_size, kernel):
    key, k_acc, k_p, k_eps = jax.random.split(key, 4)
    leaves, treedef = jax.tree.flatten(q)
    p = treedef.unflatten([jax.random.normal(k, v.shape) for k, v in
                           zip(jax.random.split(k_p, len(leaves)), leaves)])
    eps = step_size * (1 + kernel.jitter * jax.random.uniform(k_eps, (), minval=-1, maxval=1))
    grad = jax.grad(log_density)

    def energy(q, p):
        return -log_density(q, data) + 0.5 * sum(jnp.sum(v**2) for v in jax.tree.leaves(p))

    def leap(carry, _):
        q, p = carry
        p = _axpy(0.5 * eps, grad(q, data), p)
        q = _axpy(eps, p, q)
        p = _axpy(0.5 * eps, grad(q, data), p)
        return (q, p), None

    h0 = energy(q, p)
    (q_new, p_new), _ = jax.lax.scan(leap, (q, p), None, length=kernel.leapfrog)
    log_ratio = jnp.nan_to_num(h0 - energy(q_new, p_new), nan=-1e9)
    accept = jnp.log(jax.random.uniform(k_acc)) < log_ratio
    q = jax.tree.map(lambda new, old: jnp.where(accept, new, old), q_new, q)
    return key, q, jnp.exp(jnp.minimum(0.0, log_ratio)), accept


@functools.partial(jax.jit, static_argnames=("kernel", "steps"))
def several(key, q, data, step_size, kernel, steps):
    def turn(carry, _):
        key, q, rate, accept = propose(*carry, data, step_size, kernel)
        return (key, q), (q, rate, accept)

    (key, q), seen = jax.lax.scan(turn, (key, q), None, length=steps)
    return key, q, seen


def sample(key, data, plan, kernel, step_size):
    q = initial(key, len(data["height"]))
    data = jax.device_put(data)
    for i in range(plan.adapt_every, plan.warmup + 1, plan.adapt_every):
        key, q, (_, rates, _) = several(key, q, data, np.float32(step_size), kernel, plan.adapt_every)
        factor = math.exp((float(rates.mean()) - plan.target) * 1.5 / math.sqrt(1 + (i - 1) / plan.adapt_every))
        step_size *= factor
    key, q, (trace, _, accepted) = several(key, q, data, np.float32(step_size), kernel, plan.draws)
    return trace, float(accepted.mean()), step_size


def summarise(trace, out=sys.stdout):
    for name in ("alpha", "mu_trend", "log_tau", "log_sigma"):
        v = np.asarray(trace[name]).reshape(len(trace[name]), -1)
        lo, mid, hi = np.percentile(v, [5, 50, 95], axis=0)
        for j in range(v.shape[1]):
            print(f"{name}[{j}]  {mid[j]: .3f}  [{lo[j]: .3f}, {hi[j]: .3f}]", file=out)


def main():
    data = simulate(np.random.default_rng(5))
    t0 = time.perf_counter()
    trace, rate, step_size = sample(jax.random.key(2), data, Plan(), Kernel(), 0.02)
    print(f"acceptance {rate:.2f}, step size {step_size:.3f}, {time.perf_counter() - t0:.1f} s")
    summarise(trace)


if __name__ == "__main__":
    main()
