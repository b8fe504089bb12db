"""Hamiltonian Monte Carlo for a Bayesian Weibull survival regression."""
import argparse
import logging
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

log = logging.getLogger("hmc")


class Chain(NamedTuple):
    q: jax.Array
    logp: jax.Array
    grad: jax.Array


class Welford:
    """Running variance on the host, for the mass matrix."""

    def __init__(self, dim):
        self.n, self.mean, self.m2 = 0, np.zeros(dim), np.zeros(dim)

    def add(self, x):
        self.n += 1
        d = x - self.mean
        self.mean += d / self.n
        self.m2 += d * (x - self.mean)

    def variance(self):
        return self.m2 / max(self.n - 1, 1) + 1e-4


def simulate(n, p, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, p)).astype(np.float32)
    beta = rng.normal(0, 0.5, p)
    t = rng.weibull(1.5, n) * np.exp(-(x @ beta) / 1.5)
    cens = rng.exponential(2.0, n)
    return x, np.minimum(t, cens).astype(np.float32), (t < cens).astype(np.float32)


def make_logp(x, t, event):
    x, t, event = map(jnp.asarray, (x, t, event))

    def logp(q):
        beta, log_k, log_tau = q[:-2], q[-2], q[-1]
        k = jnp.exp(log_k)
        eta = x @ beta
        logt = jnp.log(t)
        like = event * (log_k + (k - 1) * logt + eta) - jnp.exp(k * logt + eta)
        prior = -0.5 * jnp.sum((beta / jnp.exp(log_tau)) ** 2) - beta.size * log_tau
        return like.sum() + prior - 0.5 * log_k**2 - 0.5 * log_tau**2

    return logp


def build_transition(logp, n_leapfrog):
    vg = jax.value_and_grad(logp)

    @jax.jit
    def transition(chain, key, eps, inv_mass):
        k_mom, k_acc = jax.random.split(key)
        p0 = jax.random.normal(k_mom, chain.q.shape) / jnp.sqrt(inv_mass)
        q, p, lp, g = chain.q, p0, chain.logp, chain.grad
        for _ in range(n_leapfrog):
            p = p + 0.5 * eps * g
            q = q + eps * inv_mass * p
            lp, g = vg(q)
            p = p + 0.5 * eps * g
        energy = lambda lp_, p_: lp_ - 0.5 * jnp.sum(inv_mass * p_**2)
        log_ratio = energy(lp, p) - energy(chain.logp, p0)
        accept = jnp.log(jax.random.uniform(k_acc)) < log_ratio
        new = jax.tree.map(partial(jnp.where, accept), Chain(q, lp, g), chain)
        return new, jnp.minimum(1.0, jnp.exp(log_ratio))

    return transition, jax.jit(vg)


def summarize(draws):
    mean, sd = draws.mean(0), draws.std(0)
    d = draws - mean
    rho1 = (d[1:] * d[:-1]).mean(0) / (sd**2 + 1e-9)
    return mean, sd, draws.shape[0] * (1 - rho1) / (1 + rho1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--warmup", type=int, default=80)
    ap.add_argument("--draws", type=int, default=120)
    ap.add_argument("--leapfrog", type=int, default=32)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    x, t, event = simulate(400, 10, 0)
    logp = make_logp(x, t, event)
    transition, vg = build_transition(logp, args.leapfrog)
    dim = x.shape[1] + 2
    q = jnp.zeros(dim)
    chain = Chain(q, *vg(q))
    key, eps, inv_mass = jax.random.key(0), 0.01, np.ones(dim, np.float32)
    wf, t0 = Welford(dim), time.time()

    for i in range(args.warmup):
        key, sub = jax.random.split(key)
        chain, acc = transition(chain, sub, np.float32(eps), inv_mass)
        eps *= float(np.exp(0.05 * (float(acc) - 0.8)))
        wf.add(np.asarray(chain.q))
        if i in (40, 60):
            inv_mass, wf = wf.variance().astype(np.float32), Welford(dim)
            eps = 0.2
    log.info("warm-up done, eps %.4f, %.1fs", eps, time.time() - t0)

    draws = jnp.zeros((0, dim))
    for i in range(args.draws):
        key, sub = jax.random.split(key)
        chain, acc = transition(chain, sub, np.float32(eps), inv_mass)
        draws = jnp.concatenate([draws, chain.q[None]])
        if i % 40 == 39:
            mean, _, ess = summarize(np.asarray(draws))
            log.info("draw %d beta0 %.3f min ess %.0f %.1fs", i + 1, mean[0], ess.min(), time.time() - t0)


if __name__ == "__main__":
    main()
