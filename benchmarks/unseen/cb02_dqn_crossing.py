"""DQN on a small pixel crossing game. The replay memory stays on the device."""
import collections
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

SIZE = 32
CAPACITY = 3_000
GAMMA = 0.97


class Crossing:
    """The player climbs from the bottom row to the top and avoids the cars."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.row, self.col, self.t = SIZE - 2, SIZE // 2, 0
        self.cars = self.rng.integers(0, SIZE, SIZE)
        self.speed = self.rng.choice([-1, 1], SIZE)
        return self.frame()

    def frame(self):
        f = np.zeros((SIZE, SIZE), np.float32)
        f[np.arange(2, SIZE - 2, 3), self.cars[2 : SIZE - 2 : 3]] = 0.5
        f[self.row, self.col] = 1.0
        return f

    def step(self, action):
        self.t += 1
        self.cars = (self.cars + self.speed) % SIZE
        self.row = int(np.clip(self.row + (-2, 2, 0)[action], 0, SIZE - 1))
        hit = self.row % 3 == 2 and abs(self.cars[self.row] - self.col) <= 1
        won = self.row == 0
        reward = 1.0 if won else (-1.0 if hit else -0.01)
        return self.frame(), reward, won or hit or self.t > 60


class Replay(NamedTuple):
    obs: jax.Array
    nxt: jax.Array
    act: jax.Array
    rew: jax.Array
    done: jax.Array
    ptr: jax.Array
    size: jax.Array


def empty_replay():
    img = jnp.zeros((CAPACITY, SIZE, SIZE))
    return Replay(img, img + 0, jnp.zeros(CAPACITY, jnp.int32), jnp.zeros(CAPACITY),
                  jnp.zeros(CAPACITY, bool), jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


@jax.jit
def remember(mem, obs, act, rew, nxt, done):
    i = mem.ptr
    return Replay(mem.obs.at[i].set(obs), mem.nxt.at[i].set(nxt), mem.act.at[i].set(act),
                  mem.rew.at[i].set(rew), mem.done.at[i].set(done), (i + 1) % CAPACITY,
                  jnp.minimum(mem.size + 1, CAPACITY))


def init_net(key):
    dims = [SIZE * SIZE, 64, 64, 3]
    keys = jax.random.split(key, 3)
    return [{"w": jax.random.normal(k, (a, b)) * (2 / a) ** 0.5, "b": jnp.zeros(b)}
            for k, a, b in zip(keys, dims[:-1], dims[1:])]


def q_values(params, obs):
    x = obs.reshape(obs.shape[0], -1)
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


@jax.jit
def choose(params, obs, key, eps):
    k1, k2 = jax.random.split(key)
    greedy = q_values(params, obs[None])[0].argmax()
    return jnp.where(jax.random.uniform(k1) < eps, jax.random.randint(k2, (), 0, 3), greedy)


tx = optax.adam(5e-4)


@partial(jax.jit, donate_argnums=(0, 2))
def learn(params, target, opt_state, mem, key):
    idx = jax.random.randint(key, (32,), 0, mem.size)

    def td(p):
        q = jnp.take_along_axis(q_values(p, mem.obs[idx]), mem.act[idx][:, None], 1)[:, 0]
        best = q_values(target, mem.nxt[idx]).max(-1)
        goal = mem.rew[idx] + GAMMA * best * (1 - mem.done[idx])
        return optax.huber_loss(q, goal).mean()

    loss, grads = jax.value_and_grad(td)(params)
    upd, opt_state = tx.update(grads, opt_state)
    return optax.apply_updates(params, upd), opt_state, loss


def main(steps=700, seed=0):
    env, key = Crossing(seed), jax.random.key(seed)
    params, target = jax.jit(lambda k: (init_net(k), init_net(k)))(key)
    opt_state, mem = jax.jit(tx.init)(params), jax.jit(empty_replay)()
    returns, total, obs = collections.deque(maxlen=50), 0.0, env.reset()
    t0 = time.time()
    for step in range(steps):
        key, k_act, k_learn = jax.random.split(key, 3)
        eps = np.float32(max(0.05, 1 - step / 400))
        action = int(choose(params, obs, k_act, eps))
        nxt, rew, done = env.step(action)
        mem = remember(mem, obs, action, rew, nxt, done)
        total, obs = total + rew, nxt
        if done:
            returns.append(total)
            total, obs = 0.0, env.reset()
        if step > 100 and step % 2 == 0:
            params, opt_state, loss = learn(params, target, opt_state, mem, k_learn)
        if step % 175 == 174:
            target = jax.tree.map(jnp.copy, params)
            print(f"step {step + 1} return {np.mean(returns):.3f} loss {float(loss):.4f} {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
