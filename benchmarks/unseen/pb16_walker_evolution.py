"""OpenAI-style evolution strategy for a spring-legged hopper simulated in JAX."""
import json
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

OBS, ACT, HIDDEN = 6, 2, 16
POP, HORIZON = 64, 250
SHAPES = [(OBS, HIDDEN), (HIDDEN,), (HIDDEN, ACT), (ACT,)]
DIM = sum(int(np.prod(s)) for s in SHAPES)


def policy(flat, obs):
    parts, at = [], 0
    for shape in SHAPES:
        n = int(np.prod(shape))
        parts.append(flat[at:at + n].reshape(shape))
        at += n
    h = jnp.tanh(obs @ parts[0] + parts[1])
    return jnp.tanh(h @ parts[2] + parts[3])


def hopper(state, action, dt=0.02):
    x, y, vx, vy, angle, rest = state
    rest = jnp.clip(rest + 0.2 * action[0] * dt * 10, 0.7, 1.2)
    angle = jnp.clip(angle + action[1] * dt * 4, -0.6, 0.6)
    length = y / jnp.cos(angle)

    def stance(_):
        push = 120.0 * (rest - length)
        return push * jnp.sin(-angle), push * jnp.cos(angle)

    def flight(_):
        return 0.0, 0.0

    fx, fy = jax.lax.cond(length < rest, stance, flight, None)
    vx, vy = (vx + dt * fx) * 0.999, vy + dt * (fy - 9.81)
    return jnp.stack([x + dt * vx, jnp.maximum(y + dt * vy, 0.05), vx, vy, angle, rest])


def episode(flat, key):
    start = jnp.array([0.0, 1.2, 0.3, 0.0, 0.0, 1.0]) + 0.02 * jax.random.normal(key, (6,))

    def tick(carry, _):
        state, alive = carry
        obs = state.at[0].set(jnp.sin(state[0]))
        new = hopper(state, policy(flat, obs))
        alive = alive & (new[1] > 0.3)
        reward = jnp.where(alive, jnp.clip(new[0] - state[0], -0.1, 0.1) + 0.002, 0.0)
        return (new, alive), reward

    _, rewards = jax.lax.scan(tick, (start, True), length=HORIZON)
    return rewards.sum()


def centred_ranks(scores):
    ranks = jnp.argsort(jnp.argsort(scores))
    return ranks / (len(scores) - 1) - 0.5


@partial(jax.jit, donate_argnums=(0, 1))
def generation(mean, momentum, key, sigma, lr):
    kn, ke = jax.random.split(key)
    half = jax.random.normal(kn, (POP // 2, DIM))
    noise = jnp.concatenate([half, -half])
    scores = jax.vmap(episode, in_axes=(0, None))(mean + sigma * noise, ke)
    grad = centred_ranks(scores) @ noise / (POP * sigma)
    momentum = 0.9 * momentum + grad
    return mean + lr * momentum - 0.005 * lr * mean, momentum, scores


@jax.jit
def test(mean, keys):
    return jax.vmap(episode, in_axes=(None, 0))(mean, keys)


class Sigma:
    """Lowers the noise with every generation."""

    def __init__(self, start, end, generations):
        self.plan = np.geomspace(start, end, generations).astype(np.float32)

    def __getitem__(self, g):
        return self.plan[g]


class Journal:
    def __init__(self):
        self.rows, self.pending = [], []

    def note(self, g, scores):
        self.pending.append((g, scores))

    def flush(self):
        for g, scores in jax.device_get(self.pending):
            self.rows.append({"generation": int(g), "mean": float(scores.mean()), "best": float(scores.max())})
        self.pending.clear()
        return self.rows[-1]


def main(generations=500):
    key = jax.random.key(4)
    mean = 0.1 * jax.random.normal(key, (DIM,))
    momentum = jnp.zeros(DIM)
    sigma, journal = Sigma(0.15, 0.04, generations), Journal()
    keys = jax.random.split(key, generations)
    checks = jax.random.split(jax.random.key(8), 16)
    began, best = time.time(), (-np.inf, None)
    for g in range(generations):
        mean, momentum, scores = generation(mean, momentum, keys[g], sigma[g], np.float32(0.05))
        journal.note(g, scores)
        if (g + 1) % 100 == 0:
            score = float(test(mean, checks).mean())
            if score > best[0]:
                best = (score, np.asarray(mean))
            print(f"{json.dumps(journal.flush())} test {score:.3f} {time.time() - began:.1f}s", flush=True)
    print("best", round(best[0], 3), "norm", round(float(np.linalg.norm(best[1])), 3))


if __name__ == "__main__":
    main()
