"""Partial pooling of reading gains over schools: a hierarchical logistic-normal model with HMC.

y[s, p] ~ Binomial(n[s, p], sigmoid(alpha[s] + x[s, p] . beta)),   alpha[s] = mu + tau * z[s].
Non-centred parametrisation, diagonal mass matrix from the warm-up, jittered trajectory lengths
(Neal 2011, section 3.2) against resonances.  Four chains, one after the other.
"""
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

SCHOOLS, CLASSES, COVARS = 40, 12, 5


def simulate(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(SCHOOLS, CLASSES, COVARS))
    alpha = -0.4 + 0.7 * rng.normal(size=SCHOOLS)
    beta = np.array([0.5, -0.3, 0.0, 0.8, 0.1])
    n = rng.integers(15, 32, size=(SCHOOLS, CLASSES))
    p = 1.0 / (1.0 + np.exp(-(alpha[:, None] + x @ beta)))
    return {"x": jnp.asarray(x), "n": jnp.asarray(n), "y": jnp.asarray(rng.binomial(n, p))}


def unpack(q):
    return q[0], q[1], q[2:2 + COVARS], q[2 + COVARS:]


def log_posterior(q, data):
    mu, log_tau, beta, z = unpack(q)
    tau = jnp.exp(log_tau)
    eta = (mu + tau * z)[:, None] + data["x"] @ beta
    loglik = jnp.sum(data["y"] * eta - data["n"] * jnp.logaddexp(0.0, eta))
    prior = (-0.5 * (mu / 2.0) ** 2 - 0.5 * jnp.sum((beta / 1.5) ** 2) - 0.5 * jnp.sum(z ** 2)
             - jnp.log1p((tau / 1.0) ** 2) + log_tau)
    return loglik + prior


@partial(jax.jit, static_argnames="length")
def transition(key, q, step, inv_mass, data, length):
    """One HMC proposal of `length` leapfrog steps with accept/reject."""
    potential = jax.value_and_grad(lambda position: -log_posterior(position, data))
    k_mom, k_acc = jax.random.split(key)
    p = jax.random.normal(k_mom, q.shape) / jnp.sqrt(inv_mass)
    u0, grad = potential(q)
    h0 = u0 + 0.5 * jnp.sum(inv_mass * p ** 2)
    position = q
    for _ in range(length):
        p = p - 0.5 * step * grad
        position = position + step * inv_mass * p
        u1, grad = potential(position)
        p = p - 0.5 * step * grad
    h1 = u1 + 0.5 * jnp.sum(inv_mass * p ** 2)
    prob = jnp.minimum(1.0, jnp.exp(h0 - h1))
    prob = jnp.where(jnp.isnan(prob), 0.0, prob)
    accept = jax.random.uniform(k_acc) < prob
    return jnp.where(accept, position, q), prob


class DualAveraging:
    def __init__(self, step, goal=0.8):
        self.goal, self.mu = goal, np.log(10 * step)
        self.h = self.log_bar = 0.0
        self.t = 0

    def update(self, prob):
        self.t += 1
        eta = 1.0 / (self.t + 10)
        self.h = (1 - eta) * self.h + eta * (self.goal - prob)
        log_step = self.mu - np.sqrt(self.t) / 0.05 * self.h
        w = self.t ** -0.75
        self.log_bar = w * log_step + (1 - w) * self.log_bar
        return float(np.exp(log_step))

    @property
    def final(self):
        return float(np.exp(self.log_bar))


def run_chain(seed, data, warmup, draws, path):
    rng = np.random.default_rng(seed)
    key = jax.random.key(seed)
    q = jnp.asarray(0.1 * rng.normal(size=2 + COVARS + SCHOOLS))
    inv_mass = jnp.ones_like(q)
    tuner = DualAveraging(0.05)
    step, kept, seen, probs = 0.05, [], [], []
    for it in range(warmup + draws):
        length = int(rng.integers(path // 2, path + 1))
        q, prob = transition(jax.random.fold_in(key, it), q, step, inv_mass, data, length)
        if it < warmup:
            step = tuner.update(float(prob))
            seen.append(q)
            if it == warmup // 2:
                inv_mass = jnp.var(jnp.stack(seen[warmup // 4:]), axis=0) + 1e-3
                tuner = DualAveraging(step)
            if it == warmup - 1:
                step = tuner.final
        else:
            kept.append(q)
            probs.append(prob)
    return np.asarray(jnp.stack(kept)), float(jnp.stack(probs).mean()), step


def rhat(chains):
    n = chains.shape[1]
    within = chains.var(axis=1, ddof=1).mean(0)
    between = n * chains.mean(1).var(axis=0, ddof=1)
    return np.sqrt(((n - 1) / n * within + between / n) / within)


def main():
    data = simulate(seed=8)
    started, chains = time.time(), []
    for c in range(4):
        draws, rate, step = run_chain(100 + c, data, warmup=200, draws=300, path=24)
        chains.append(draws)
        print(f"chain {c}: acceptance {rate:.2f}, step {step:.4f}")
    chains = np.stack(chains)
    flat = chains.reshape(-1, chains.shape[-1])
    print("mu %.3f  tau %.3f  beta %s" % (flat[:, 0].mean(), np.exp(flat[:, 1]).mean(),
                                          np.round(flat[:, 2:2 + COVARS].mean(0), 3)))
    print(f"max R-hat {rhat(chains).max():.3f}   {time.time() - started:.1f} s")


if __name__ == "__main__":
    main()
