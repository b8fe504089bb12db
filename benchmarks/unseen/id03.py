"""Hierarchical logistic regression (hospital mortality, patients within hospitals) by
Hamiltonian Monte Carlo with jittered trajectory lengths; two chains, R-hat at the end."""
import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

parser = argparse.ArgumentParser()
parser.add_argument("--hospitals", type=int, default=24)
parser.add_argument("--patients", type=int, default=2400)
parser.add_argument("--covariates", type=int, default=6)
parser.add_argument("--warmup", type=int, default=250)
parser.add_argument("--samples", type=int, default=350)
parser.add_argument("--chains", type=int, default=2)


def simulate_data(args, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((args.patients, args.covariates))
    hospital = rng.integers(0, args.hospitals, args.patients)
    beta = rng.normal(0, 0.5, args.covariates)
    offset = rng.normal(-1.0, 0.6, args.hospitals)
    p = 1 / (1 + np.exp(-(X @ beta + offset[hospital])))
    y = rng.random(args.patients) < p
    data = dict(X=jnp.asarray(X, jnp.float32), h=jnp.asarray(hospital),
                y=jnp.asarray(y, jnp.float32))
    return data, beta


def template(args):
    return {"mu": jnp.zeros(()), "log_tau": jnp.zeros(()),
            "z": jnp.zeros(args.hospitals), "beta": jnp.zeros(args.covariates)}


def make_log_density(data, unravel):
    def log_density(q):
        p = unravel(q)
        tau = jnp.exp(p["log_tau"])
        logits = data["X"] @ p["beta"] + p["mu"] + tau * p["z"][data["h"]]
        loglik = jnp.sum(data["y"] * logits - jax.nn.softplus(logits))
        prior = (-0.5 * jnp.sum(p["z"] ** 2) - 0.5 * jnp.sum(p["beta"] ** 2)
                 - 0.5 * p["mu"] ** 2 / 4 - 0.5 * tau ** 2 + p["log_tau"])
        return loglik + prior
    return log_density


class HMC:
    def __init__(self, log_density, dim):
        self.value_and_grad = jax.value_and_grad(log_density)
        self.dim = dim

    @partial(jax.jit, static_argnums=(0, 5))
    def transition(self, key, q, inv_mass, eps, n_leapfrog):
        k_mom, k_acc = jax.random.split(key)
        p = jax.random.normal(k_mom, (self.dim,)) / jnp.sqrt(inv_mass)
        logp, grad = self.value_and_grad(q)
        h0 = logp - 0.5 * jnp.sum(inv_mass * p * p)

        def leapfrog(_, carry):
            q, p, _, grad = carry
            p = p + 0.5 * eps * grad
            q = q + eps * inv_mass * p
            logp, grad = self.value_and_grad(q)
            return q, p + 0.5 * eps * grad, logp, grad

        q_new, p, logp, _ = jax.lax.fori_loop(0, n_leapfrog, leapfrog, (q, p, logp, grad))
        log_accept = logp - 0.5 * jnp.sum(inv_mass * p * p) - h0
        prob = jnp.exp(jnp.minimum(jnp.nan_to_num(log_accept, nan=-jnp.inf), 0.0))
        accepted = jax.random.uniform(k_acc) < prob
        return jnp.where(accepted, q_new, q), prob


def run_chain(kernel, key, q, args, jitter):
    inv_mass, log_eps = jnp.ones(kernel.dim), np.log(0.03)
    trace = q[None]
    accept = []
    for it in range(args.warmup + args.samples):
        key, sub = jax.random.split(key)
        q, prob = kernel.transition(sub, q, inv_mass, np.float32(np.exp(log_eps)),
                                    int(jitter.integers(8, 33)))
        trace = jnp.concatenate([trace, q[None]])
        if it < args.warmup:
            # Robbins-Monro step on the log step size: needs the acceptance on the host
            log_eps += 3.0 * (float(prob) - 0.8) / (it + 5) ** 0.6
            if it == args.warmup // 2:
                inv_mass = jnp.var(trace[it // 2:], axis=0) + 1e-3
        else:
            accept.append(prob)
    rate = float(jnp.mean(jnp.stack(accept)))
    return np.asarray(trace[args.warmup + 1:]), rate, float(np.exp(log_eps))


def split_rhat(chains):
    half = chains.shape[1] // 2
    parts = np.concatenate([chains[:, :half], chains[:, half:2 * half]])
    within = parts.var(axis=1, ddof=1).mean(0)
    between = half * parts.mean(axis=1).var(axis=0, ddof=1)
    return np.sqrt(((half - 1) / half * within + between / half) / within)


def main():
    args = parser.parse_args()
    data, beta = simulate_data(args, seed=3)
    flat, unravel = ravel_pytree(template(args))
    kernel = HMC(make_log_density(data, unravel), flat.size)
    jitter = np.random.default_rng(1)
    chains = []
    for c in range(args.chains):
        key, k0 = jax.random.split(jax.random.key(c))
        q0 = flat + 0.2 * jax.random.normal(k0, flat.shape)
        draws, rate, eps = run_chain(kernel, key, q0, args, jitter)
        print(f"chain {c}: acceptance {rate:.2f}, step size {eps:.3f}")
        chains.append(draws)
    chains = np.stack(chains)
    rhat = split_rhat(chains)
    mean = unravel(jnp.asarray(chains.mean((0, 1))))
    print("max R-hat", round(float(rhat.max()), 3))
    print("beta", np.round(np.asarray(mean["beta"]), 2), "true", np.round(beta, 2))
    print("tau", round(float(jnp.exp(mean["log_tau"])), 3), "mu", round(float(mean["mu"]), 3))


if __name__ == "__main__":
    main()
