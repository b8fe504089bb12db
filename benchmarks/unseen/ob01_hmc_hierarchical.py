"""Bayesian hierarchical logistic regression (hospitals x covariates) with a hand-written HMC sampler."""
import dataclasses
import functools
import math
import time

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class SamplerConfig:
    warmup_rounds: int = 8
    iters_per_round: int = 20
    draws: int = 200
    leapfrog: int = 12
    target_accept: float = 0.8
    init_step: float = 0.02
    seed: int = 3


def simulate(seed, hospitals=12, per_hospital=60, covariates=6):
    rng = np.random.default_rng(seed)
    mu = rng.normal(0, 0.7, covariates)
    beta = mu + 0.4 * rng.normal(size=(hospitals, covariates))
    x = rng.normal(size=(hospitals, per_hospital, covariates)).astype(np.float32)
    logits = np.einsum("hnc,hc->hn", x, beta)
    y = (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    return x, y, mu


class Posterior:
    """Log density over an unconstrained dictionary of parameters."""

    def __init__(self, x, y):
        self.x = jnp.asarray(x)
        self.y = jnp.asarray(y)

    def init(self, key):
        h, _, c = self.x.shape
        k1, k2 = jax.random.split(key)
        return {
            "mu": 0.1 * jax.random.normal(k1, (c,)),
            "log_tau": jnp.full((c,), -1.0),
            "z": 0.1 * jax.random.normal(k2, (h, c)),
        }

    def __call__(self, theta):
        beta = theta["mu"] + jnp.exp(theta["log_tau"]) * theta["z"]
        logits = jnp.einsum("hnc,hc->hn", self.x, beta)
        loglik = jnp.sum(self.y * logits - jax.nn.softplus(logits))
        prior = -0.5 * (jnp.sum(theta["mu"] ** 2) + jnp.sum(theta["z"] ** 2))
        prior = prior - 0.5 * jnp.sum((theta["log_tau"] + 1.0) ** 2)
        return loglik + prior


def tree_axpy(a, x, y):
    return jax.tree.map(lambda xi, yi: yi + a * xi, x, y)


def hmc_round(key, theta, posterior, step_size, leapfrog, iters):
    """Runs `iters` transitions, returns the last state and the mean acceptance."""
    grad = jax.grad(posterior)

    def transition(theta, key):
        k_mom, k_acc = jax.random.split(key)
        leaves, treedef = jax.tree.flatten(theta)
        keys = jax.random.split(k_mom, len(leaves))
        mom = treedef.unflatten([jax.random.normal(k, l.shape) for k, l in zip(keys, leaves)])
        kinetic = lambda m: 0.5 * sum(jnp.sum(v ** 2) for v in jax.tree.leaves(m))

        def leap(carry, _):
            q, p = carry
            p = tree_axpy(0.5 * step_size, grad(q), p)
            q = tree_axpy(step_size, p, q)
            p = tree_axpy(0.5 * step_size, grad(q), p)
            return (q, p), None

        (q, p), _ = jax.lax.scan(leap, (theta, mom), None, length=leapfrog)
        log_ratio = posterior(q) - kinetic(p) - posterior(theta) + kinetic(mom)
        accept = jnp.minimum(1.0, jnp.exp(log_ratio))
        take = jax.random.uniform(k_acc) < accept
        return jax.tree.map(lambda a, b: jnp.where(take, a, b), q, theta), accept

    theta, accepts = jax.lax.scan(transition, theta, jax.random.split(key, iters))
    return theta, accepts.mean()


class DualAveraging:
    def __init__(self, step, target):
        self.mu, self.target = math.log(10 * step), target
        self.h_bar, self.log_bar, self.t = 0.0, math.log(step), 0

    def update(self, accept):
        self.t += 1
        w = 1.0 / (self.t + 10)
        self.h_bar = (1 - w) * self.h_bar + w * (self.target - accept)
        log_step = self.mu - math.sqrt(self.t) / 0.3 * self.h_bar
        eta = self.t ** -0.75
        self.log_bar = eta * log_step + (1 - eta) * self.log_bar
        return math.exp(min(log_step, -1.0))


class HMC:
    def __init__(self, posterior, cfg):
        self.posterior, self.cfg = posterior, cfg
        self.set_step(cfg.init_step)

    def set_step(self, step, iters=None):
        self.step = step
        self.round = jax.jit(functools.partial(
            hmc_round, posterior=self.posterior, step_size=step,
            leapfrog=self.cfg.leapfrog, iters=iters or self.cfg.iters_per_round))

    def warmup(self, key, theta):
        adapt = DualAveraging(self.cfg.init_step, self.cfg.target_accept)
        for r in range(self.cfg.warmup_rounds):
            key, sub = jax.random.split(key)
            theta, accept = self.round(sub, theta)
            self.set_step(adapt.update(float(accept)))
            if r % 4 == 0:
                print(f"warmup {r:3d}  accept {float(accept):.2f}  step {self.step:.4f}")
        return key, theta, math.exp(adapt.log_bar)

    def sample(self, key, theta):
        mus = theta["mu"][None]
        for _ in range(self.cfg.draws):
            key, sub = jax.random.split(key)
            theta, _ = self.round(sub, theta)
            mus = jnp.concatenate([mus, theta["mu"][None]], axis=0)
        return mus[1:]


def main():
    cfg = SamplerConfig()
    x, y, mu_true = simulate(cfg.seed)
    posterior = Posterior(x, y)
    key, k_init = jax.random.split(jax.random.key(cfg.seed))
    sampler = HMC(posterior, cfg)
    start = time.perf_counter()
    key, theta, step = sampler.warmup(key, posterior.init(k_init))
    sampler.set_step(step, iters=2)
    mus = np.asarray(sampler.sample(key, theta))
    print("posterior mean", mus.mean(0).round(2))
    print("truth         ", mu_true.round(2))
    print(f"{time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
