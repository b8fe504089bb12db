"""Novelty search for gaits of a three-segment swimmer with small neural controllers."""
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree


@dataclass
class Config:
    population: int = 64
    elites: int = 12
    generations: int = 50
    admitted: int = 5
    neighbours: int = 10
    horizon: int = 120
    sigma: float = 0.08


def init_controller(key, hidden=12):
    k1, k2, k3 = jax.random.split(key, 3)
    return {
        "in": {"w": 0.6 * jax.random.normal(k1, (6, hidden)), "b": jnp.zeros(hidden)},
        "mid": {"w": 0.4 * jax.random.normal(k2, (hidden, hidden)), "b": jnp.zeros(hidden)},
        "out": {"w": 0.6 * jax.random.normal(k3, (hidden, 2)), "b": jnp.zeros(2)},
    }


def controller(params, obs):
    h = jnp.tanh(obs @ params["in"]["w"] + params["in"]["b"])
    h = jnp.tanh(h @ params["mid"]["w"] + params["mid"]["b"])
    return jnp.tanh(h @ params["out"]["w"] + params["out"]["b"])


def swim(params, horizon):
    """Purcell-like swimmer; the behaviour is the path of the body in the plane."""

    def tick(carry, t):
        pos, heading, joints, speed = carry
        obs = jnp.concatenate([joints, speed, jnp.array([jnp.sin(0.2 * t), jnp.cos(0.2 * t)])])
        torque = controller(params, obs)
        speed = 0.9 * speed + 0.2 * torque - 0.05 * joints
        new = jnp.clip(joints + 0.1 * speed, -1.2, 1.2)
        d = new - joints
        thrust = new[0] * d[1] - new[1] * d[0]
        heading = heading + 0.3 * (d[0] + d[1]) + 0.02 * new.sum()
        pos = pos + 6.0 * thrust * jnp.array([jnp.cos(heading), jnp.sin(heading)])
        return (pos, heading, new, speed), pos

    start = (jnp.zeros(2), jnp.zeros(()), jnp.zeros(2), jnp.zeros(2))
    _, path = jax.lax.scan(tick, start, jnp.arange(horizon, dtype=jnp.float32))
    quarter = horizon // 4
    return path[quarter - 1 :: quarter].reshape(-1)


class NoveltySearch:
    def __init__(self, cfg: Config, seed=0):
        self.cfg = cfg
        self.key = jax.random.key(seed)
        first = [jax.jit(init_controller)(k) for k in jax.random.split(self._next(), cfg.population)]
        self.people = jnp.stack([ravel_pytree(p)[0] for p in first])
        unravel = ravel_pytree(first[0])[1]
        self.breed = jax.jit(self._breed)
        self.archive = np.full((cfg.admitted * cfg.generations, 8), 1e6, np.float32)
        self.admitted = 0
        self.rollout = jax.jit(jax.vmap(lambda p: swim(unravel(p), cfg.horizon)))
        self.rank = jax.jit(self._novelty)

    def _next(self):
        self.key, sub = jax.random.split(self.key)
        return sub

    def _novelty(self, behaviours, archive):
        pool = jnp.concatenate([behaviours, archive])
        gap = jnp.sqrt(jnp.sum((behaviours[:, None] - pool[None]) ** 2, axis=-1) + 1e-12)
        nearest = -jax.lax.top_k(-gap, self.cfg.neighbours + 1)[0]
        return nearest[:, 1:].mean(axis=1)

    def _breed(self, people, best, key):
        elite = people[best]
        parents = elite[jnp.arange(self.cfg.population - self.cfg.elites) % self.cfg.elites]
        return jnp.concatenate([elite, parents + self.cfg.sigma * jax.random.normal(key, parents.shape)])

    def generation(self):
        cfg = self.cfg
        behaviours = self.rollout(self.people)
        novelty = self.rank(behaviours, self.archive)
        order = np.argsort(-np.asarray(novelty))
        slot = slice(self.admitted, self.admitted + cfg.admitted)
        self.archive[slot] = np.asarray(behaviours)[order[: cfg.admitted]]
        self.admitted += cfg.admitted
        self.people = self.breed(self.people, order[: cfg.elites], self._next())
        return behaviours, novelty


def coverage(archive, cell=0.25):
    cells = np.floor(np.asarray(archive)[:, -2:] / cell).astype(int)
    return len({tuple(c) for c in cells})


def main():
    cfg = Config()
    search = NoveltySearch(cfg)
    began = time.perf_counter()
    for g in range(cfg.generations):
        behaviours, novelty = search.generation()
        if g % 5 == 4:
            reach = float(jnp.linalg.norm(behaviours[:, -2:], axis=1).max())
            print(
                f"generation {g + 1:3d} novelty {float(novelty.mean()):.3f} reach {reach:.2f} "
                f"archive {search.admitted} cells {coverage(search.archive[: search.admitted])} "
                f"{time.perf_counter() - began:.1f}s"
            )


if __name__ == "__main__":
    main()
