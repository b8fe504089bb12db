"""Joint inference of selection coefficients from allele-frequency time series.

Wright-Fisher diffusion with selection; random-walk Metropolis over many loci at
once, plus a shared effective population size.  Chains run inside lax.scan.
"""
import argparse
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

GRID = 65
DEPTH = 100                     # chromosomes sequenced at every sampling time


class Chain(NamedTuple):
    s: jax.Array                # (loci,)
    log_ne: jax.Array           # ()
    loglik: jax.Array           # (loci,)
    step: jax.Array             # (loci,) proposal scales


def frequencies():
    return jnp.linspace(0.0, 1.0, GRID).at[0].set(1e-3).at[-1].set(1 - 1e-3)


def transition(s, ne, gens):
    """Gaussian approximation of the frequency after `gens` generations."""
    x = frequencies()
    odds = x / (1 - x) * jnp.exp(s * gens)
    mean = odds / (1 + odds)
    drift = jnp.maximum(1 - (1 - 0.5 / ne) ** gens, 1e-6)
    sd = jnp.sqrt(jnp.maximum(mean * (1 - mean) * drift, 1e-6)) + 0.004
    p = jnp.exp(-0.5 * ((x[None] - mean[:, None]) / sd[:, None]) ** 2)
    return p / p.sum(1, keepdims=True)


def emission(counts):
    x = frequencies()
    return counts[:, None] * jnp.log(x) + (DEPTH - counts[:, None]) * jnp.log1p(-x)


def locus_loglik(s, log_ne, counts, gens):
    e = emission(counts)
    t = transition(s, jnp.exp(log_ne), gens)
    alpha = e[0] - jnp.log(GRID)

    def forward(alpha, e):
        top = alpha.max()
        return jnp.log(jnp.exp(alpha - top) @ t + 1e-30) + top + e, None

    alpha, _ = jax.lax.scan(forward, alpha, e[1:])
    return jax.nn.logsumexp(alpha)


all_loci = jax.vmap(locus_loglik, in_axes=(0, None, 0, None))


def log_prior(s, log_ne):
    return -0.5 * (s / 0.05) ** 2, -0.5 * ((log_ne - 6.0) / 1.0) ** 2


def sweep(chain, key, counts, gens, adapt):
    k = jax.random.split(key, 4)
    prop = chain.s + chain.step * jax.random.normal(k[0], chain.s.shape)
    new = all_loci(prop, chain.log_ne, counts, gens)
    gain = new + log_prior(prop, 0)[0] - chain.loglik - log_prior(chain.s, 0)[0]
    accept = jnp.log(jax.random.uniform(k[1], gain.shape)) < gain
    s = jnp.where(accept, prop, chain.s)
    ll = jnp.where(accept, new, chain.loglik)
    ne = chain.log_ne + 0.1 * jax.random.normal(k[2])
    new = all_loci(s, ne, counts, gens)
    gain = new.sum() - ll.sum() + log_prior(0, ne)[1] - log_prior(0, chain.log_ne)[1]
    ok = jnp.log(jax.random.uniform(k[3])) < gain
    step = chain.step * jnp.exp(adapt * (accept - 0.35))
    return Chain(s, jnp.where(ok, ne, chain.log_ne), jnp.where(ok, new, ll), step), (accept, ok)


@partial(jax.jit, static_argnames="length", donate_argnames="chain")
def run_block(chain, key, counts, gens, adapt, *, length):
    def body(c, k):
        c, accepted = sweep(c, k, counts, gens, adapt)
        return c, (c.s, c.log_ne, accepted)

    return jax.lax.scan(body, chain, jax.random.split(key, length))


def simulate(loci, times, gens, ne, rng):
    s = np.where(rng.random(loci) < 0.3, rng.normal(0.03, 0.015, loci), 0.0)
    x = rng.uniform(0.15, 0.6, loci)
    counts = []
    for _ in range(times):
        counts.append(rng.binomial(DEPTH, x))
        for _ in range(gens):
            x = np.clip(x + s * x * (1 - x), 0, 1)
            x = rng.binomial(2 * ne, x) / (2 * ne)
    return s.astype(np.float32), np.stack(counts, 1).astype(np.float32)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--loci", type=int, default=64)
    ap.add_argument("--blocks", type=int, default=80)
    ap.add_argument("--length", type=int, default=25)
    a = ap.parse_args()
    true, counts = simulate(a.loci, 9, 8, 500, np.random.default_rng(2))
    counts, key = jnp.asarray(counts), jax.random.key(0)
    s0, ne0 = jnp.zeros(a.loci), jnp.float32(5.5)
    ll0 = jax.jit(all_loci)(s0, ne0, counts, 8.0)
    chain = Chain(s0, ne0, ll0, jnp.full(a.loci, 0.02))
    warm = a.blocks // 3
    kept, sizes = [], []
    for b in range(a.blocks):
        key, sub = jax.random.split(key)
        adapt = 0.05 if b < warm else 0.0
        chain, (s, ne, (acc, ok)) = run_block(chain, sub, counts, 8.0, adapt, length=a.length)
        if b >= warm:
            kept.append(np.asarray(s))
            sizes.append(np.asarray(ne))
        if b % 20 == 19:
            print(f"block {b + 1:2d}: accept s {float(acc.mean()):.2f}, Ne {float(ok.mean()):.2f}, "
                  f"Ne now {float(jnp.exp(chain.log_ne)):.0f}, loglik {float(chain.loglik.sum()):.1f}")
    post = np.concatenate(kept)
    rms = np.sqrt(((post.mean(0) - true) ** 2).mean())
    covered = (np.quantile(post, 0.05, 0) < true) & (true < np.quantile(post, 0.95, 0))
    print(f"rms error of s {rms:.4f}; 90 % intervals cover {covered.mean():.2f}; "
          f"Ne {np.exp(np.concatenate(sizes)).mean():.0f} (true 500)")


if __name__ == "__main__":
    main()
