"""Evolution strategies for a planar hopper; rollouts are one compiled scan per generation."""
import json
import os
import tempfile
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree


class Body(NamedTuple):
    pos: jax.Array
    vel: jax.Array
    leg: jax.Array
    dleg: jax.Array


class Spec(NamedTuple):
    population: int = 64
    horizon: int = 200
    hidden: int = 16
    sigma: float = 0.08
    generations: int = 45


SPEC = Spec()
DT = 0.02


def reset(key):
    k1, k2 = jax.random.split(key)
    return Body(jnp.array([0.0, 1.0]) + 0.02 * jax.random.normal(k1, (2,)), jnp.zeros(2),
                0.1 * jax.random.normal(k2, (2,)), jnp.zeros(2))


def physics(b, torque):
    ddleg = 12 * torque - 1.5 * b.dleg - 4 * b.leg
    dleg = b.dleg + DT * ddleg
    leg = jnp.clip(b.leg + DT * dleg, -1.2, 1.2)
    foot = b.pos[1] - jnp.cos(leg[0]) * (1 + 0.3 * leg[1])
    push = jnp.maximum(0.0, -foot) * 80
    acc = jnp.array([push * jnp.sin(-leg[0]) - 0.4 * b.vel[0], push * jnp.cos(leg[0]) - 9.81 - 0.5 * b.vel[1]])
    vel = b.vel + DT * acc
    return Body(b.pos + DT * vel, vel, leg, dleg)


def policy(params, b, t):
    obs = jnp.concatenate([b.pos[1:], b.vel, b.leg, b.dleg, jnp.array([jnp.sin(8 * t), jnp.cos(8 * t)])])
    h = jnp.tanh(params["w1"] @ obs + params["b1"])
    return jnp.tanh(params["w2"] @ h)


def rollout(params, key):
    def tick(b, i):
        a = policy(params, b, i * DT)
        nb = physics(b, a)
        alive = (nb.pos[1] > 0.4).astype(jnp.float32)
        return nb, alive * (nb.vel[0] + 0.1) - 0.01 * (a**2).sum()

    _, r = jax.lax.scan(tick, reset(key), jnp.arange(SPEC.horizon))
    return r.sum()


def centered_ranks(x):
    ranks = jnp.argsort(jnp.argsort(x))
    return ranks / (x.size - 1) - 0.5


shapes = {"w1": np.zeros((SPEC.hidden, 9), np.float32), "b1": np.zeros(SPEC.hidden, np.float32),
          "w2": np.zeros((2, SPEC.hidden), np.float32)}
_, unravel = ravel_pytree(shapes)


@jax.jit
def start(key):
    w1 = 0.3 * jax.random.normal(key, (SPEC.hidden, 9))
    theta = ravel_pytree({**shapes, "w1": w1})[0]
    return theta, tx.init(theta)


tx = optax.chain(optax.add_decayed_weights(1e-3), optax.adam(optax.cosine_decay_schedule(0.05, SPEC.generations)))


@partial(jax.jit, donate_argnums=(0, 1))
def generation(theta, opt_state, key):
    k_noise, k_roll = jax.random.split(key)
    eps = jax.random.normal(k_noise, (SPEC.population // 2, theta.size))
    eps = jnp.concatenate([eps, -eps])
    keys = jnp.tile(jax.random.split(k_roll, SPEC.population // 2), 2)
    fit = jax.vmap(lambda e, k: rollout(unravel(theta + SPEC.sigma * e), k))(eps, keys)
    g = -(centered_ranks(fit) @ eps) / (SPEC.population * SPEC.sigma)
    upd, opt_state = tx.update(g, opt_state, theta)
    return optax.apply_updates(theta, upd), opt_state, {"mean": fit.mean(), "best": fit.max()}


@jax.jit
def score(theta, keys):
    return jax.vmap(lambda k: rollout(unravel(theta), k))(keys).mean()


class Journal:
    def __init__(self, path):
        self.path, self.rows = path, []

    def write(self, gen, **metrics):
        self.rows.append({"gen": gen, **metrics})
        with open(self.path, "a") as f:
            f.write(json.dumps(self.rows[-1]) + "\n")


def main():
    theta, opt_state = start(jax.random.key(0))
    keys = jax.random.split(jax.random.key(3), SPEC.generations)
    exam = jax.random.split(jax.random.key(9), 32)
    journal = Journal(os.path.join(tempfile.mkdtemp(), "es.jsonl"))
    best, patience, t0 = -np.inf, 0, time.time()
    for gen, k in enumerate(keys):
        theta, opt_state, m = generation(theta, opt_state, k)
        m = {n: float(v) for n, v in jax.device_get(m).items()}
        journal.write(gen, **m)
        if m["mean"] > best + 1e-3:
            best, patience = m["mean"], 0
        else:
            patience += 1
        if gen % 15 == 14:
            print(f"gen {gen + 1} mean {m['mean']:.2f} best {m['best']:.2f} "
                  f"exam {float(score(theta, exam)):.2f} {time.time() - t0:.1f}s")
        if patience > 40:
            break
    np.save(journal.path.replace(".jsonl", ".npy"), np.asarray(theta))


if __name__ == "__main__":
    main()
