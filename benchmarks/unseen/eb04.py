"""Evolution strategy (OpenAI-style, antithetic) for swinging up a cart-pole."""
import dataclasses
from typing import Callable

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class CartPole:
    gravity: float = 9.8
    cart: float = 1.0
    pole: float = 0.1
    length: float = 0.5
    dt: float = 0.02
    horizon: int = 200

    def derivatives(self, s, force):
        x, xd, th, thd = s
        total = self.cart + self.pole
        tmp = (force + self.pole * self.length * thd ** 2 * jnp.sin(th)) / total
        thdd = (self.gravity * jnp.sin(th) - jnp.cos(th) * tmp) / (
            self.length * (4 / 3 - self.pole * jnp.cos(th) ** 2 / total))
        xdd = tmp - self.pole * self.length * thdd * jnp.cos(th) / total
        return xd, xdd, thd, thdd

    def step(self, s, force):
        d = self.derivatives(s, force)
        return jnp.stack([a + self.dt * b for a, b in zip(s, d)])

    def observe(self, s):
        return jnp.stack([s[0], s[1], jnp.cos(s[2]), jnp.sin(s[2]), s[3]])

    def reward(self, s):
        return jnp.cos(s[2]) - 0.05 * s[0] ** 2 - 0.002 * s[3] ** 2


class Policy:
    """Two-layer tanh network over one flat parameter vector."""

    def __init__(self, obs=5, hidden=16):
        self.shapes = [(obs, hidden), (hidden,), (hidden, hidden), (hidden,), (hidden, 1), (1,)]
        self.size = sum(int(np.prod(s)) for s in self.shapes)

    def __call__(self, flat, obs):
        parts, at = [], 0
        for s in self.shapes:
            n = int(np.prod(s))
            parts.append(flat[at:at + n].reshape(s))
            at += n
        h = jnp.tanh(obs @ parts[0] + parts[1])
        h = jnp.tanh(h @ parts[2] + parts[3])
        return 10.0 * jnp.tanh(h @ parts[4] + parts[5])[0]


def make_fitness(env: CartPole, policy: Callable):
    @jax.jit
    def fitness(flat, start):
        def tick(s, _):
            s = env.step(s, policy(flat, env.observe(s)))
            return s, env.reward(s)

        _, rewards = jax.lax.scan(tick, start, None, length=env.horizon)
        return rewards.mean()

    return fitness


def centred_ranks(values):
    order = np.argsort(np.argsort(values))
    return order / (len(values) - 1) - 0.5


class EvolutionStrategy:
    def __init__(self, fitness, size, pairs=64, sigma=0.1, lr=0.05, seed=0):
        self.fitness, self.pairs, self.sigma, self.lr = fitness, pairs, sigma, lr
        self.rng = np.random.default_rng(seed)
        self.mean = 0.1 * self.rng.standard_normal(size).astype(np.float32)
        self.momentum = np.zeros(size, np.float32)

    def generation(self, starts):
        eps = self.rng.standard_normal((self.pairs, self.mean.size)).astype(np.float32)
        eps = np.concatenate([eps, -eps])
        scores = []
        for e in eps:
            candidate = jnp.asarray(self.mean + self.sigma * e)
            returns = [self.fitness(candidate, s) for s in starts]
            scores.append(float(sum(returns)) / len(returns))
        grad = centred_ranks(np.array(scores)) @ eps / (len(eps) * self.sigma)
        self.momentum = 0.9 * self.momentum + grad.astype(np.float32)
        self.mean = self.mean + self.lr * self.momentum - 1e-4 * self.mean
        return np.array(scores)


def main(generations=40, starts_per_generation=4):
    env, policy = CartPole(), Policy()
    fitness = make_fitness(env, policy)
    es = EvolutionStrategy(fitness, policy.size)
    rng = np.random.default_rng(1)
    for g in range(generations):
        starts = rng.normal(scale=0.1, size=(starts_per_generation, 4)).astype(np.float32)
        starts[:, 2] += np.pi
        scores = es.generation(jnp.asarray(starts))
        if g % 5 == 4:
            print(f"generation {g + 1:3d}: mean {scores.mean():+.3f}  best {scores.max():+.3f}")
    hang = jnp.array([0.0, 0.0, np.pi, 0.0])
    print("final policy from hanging:", round(float(fitness(jnp.asarray(es.mean), hang)), 3))


if __name__ == "__main__":
    main()
