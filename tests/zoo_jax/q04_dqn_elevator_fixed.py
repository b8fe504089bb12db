"""Double DQN that dispatches a single elevator in a small building."""
import collections
import random
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

FLOORS = 6
ACTIONS = 3  # down, stay and open, up


class Transition(NamedTuple):
    obs: np.ndarray
    action: int
    reward: float
    next_obs: np.ndarray
    done: bool


class Elevator:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.pos, self.t = int(self.rng.integers(FLOORS)), 0
        self.waiting = np.zeros(FLOORS, np.float32)
        self.riding = np.zeros(FLOORS, np.float32)
        return self._obs()

    def _obs(self):
        here = np.eye(FLOORS, dtype=np.float32)[self.pos]
        return np.concatenate([here, np.minimum(self.waiting, 4) / 4, np.minimum(self.riding, 4) / 4])

    def step(self, action):
        self.t += 1
        reward = 0.0
        if action == 1:
            reward += float(self.riding[self.pos])
            self.riding[self.pos] = 0
            for _ in range(int(self.waiting[self.pos])):
                self.riding[self.rng.integers(FLOORS)] += 1
            self.waiting[self.pos] = 0
        else:
            self.pos = int(np.clip(self.pos + action - 1, 0, FLOORS - 1))
        if self.rng.random() < 0.3:
            self.waiting[self.rng.integers(FLOORS)] += 1
        reward -= 0.05 * float(self.waiting.sum() + self.riding.sum())
        return self._obs(), reward, self.t >= 60


class ReplayBuffer:
    def __init__(self, capacity):
        self.items = collections.deque(maxlen=capacity)

    def add(self, obs, action, reward, next_obs, done):
        self.items.append(Transition(obs, action, reward, next_obs, done))

    def sample(self, n):
        chosen = random.sample(self.items, n)
        obs = np.stack([t.obs for t in chosen])
        next_obs = np.stack([t.next_obs for t in chosen])
        action = np.array([t.action for t in chosen], np.int32)
        reward = np.array([t.reward for t in chosen], np.float32)
        done = np.array([t.done for t in chosen], np.float32)
        return obs, action, reward, next_obs, done


def init_params(key, sizes=(3 * FLOORS, 64, 64, ACTIONS)):
    layers = []
    for m, n in zip(sizes[:-1], sizes[1:]):
        key, sub = jax.random.split(key)
        layers.append({"w": jax.random.normal(sub, (m, n)) * (2 / m) ** 0.5, "b": jnp.zeros(n)})
    return layers


def q_values(params, obs):
    h = obs
    for layer in params[:-1]:
        h = jax.nn.relu(h @ layer["w"] + layer["b"])
    return h @ params[-1]["w"] + params[-1]["b"]


tx = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(5e-4))


@jax.jit
def update(params, target, opt_state, obs, action, reward, next_obs, done):
    best = q_values(params, next_obs).argmax(-1)
    boot = jnp.take_along_axis(q_values(target, next_obs), best[:, None], 1)[:, 0]
    goal = reward + 0.97 * (1 - done) * boot

    def loss_fn(p):
        q = jnp.take_along_axis(q_values(p, obs), action[:, None], 1)[:, 0]
        return optax.huber_loss(q, goal).mean()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = tx.update(grads, opt_state)
    params = optax.apply_updates(params, updates)
    target = jax.tree.map(lambda t, p: 0.99 * t + 0.01 * p, target, params)
    return params, target, opt_state, loss


@jax.jit
def greedy(params, obs):
    return jnp.argmax(q_values(params, obs))


def choose(params, obs, epsilon):
    if random.random() < epsilon:
        return random.randrange(ACTIONS)
    return int(greedy(params, obs))


def main():
    random.seed(0)
    env, buffer = Elevator(0), ReplayBuffer(5000)
    params = init_params(jax.random.key(0))
    target = params
    opt_state = tx.init(params)
    steps, started = 0, time.time()
    returns = []
    for episode in range(40):
        obs, done, total = env.reset(), False, 0.0
        while not done:
            epsilon = max(0.05, 1.0 - steps / 1200)
            action = choose(params, obs, epsilon)
            next_obs, reward, done = env.step(action)
            buffer.add(obs, action, reward, next_obs, done)
            obs, total, steps = next_obs, total + reward, steps + 1
            if len(buffer.items) >= 200:
                batch = buffer.sample(32)
                params, target, opt_state, loss = update(params, target, opt_state, *batch)
        returns.append(total)
        if episode % 10 == 9:
            print(f"episode {episode + 1}: return {np.mean(returns[-10:]):.2f} "
                  f"loss {float(loss):.4f} {steps / (time.time() - started):.0f} steps/s")


if __name__ == "__main__":
    main()
