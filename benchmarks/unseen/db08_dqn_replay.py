"""Double DQN on a batch of noisy grid worlds; the replay memory lives on the device."""
import time
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

GRID, ENVS, CAPACITY, BATCH = 10, 32, 8_000, 128
STEPS, GAMMA, TARGET_EVERY = 1500, 0.97, 250
OBS = 2 * GRID * GRID


class Replay(NamedTuple):
    obs: jax.Array
    nxt: jax.Array
    action: jax.Array
    reward: jax.Array
    done: jax.Array
    head: jax.Array
    filled: jax.Array


class QNet(nn.Module):
    @nn.compact
    def __call__(self, obs):
        x = nn.relu(nn.Dense(128)(obs))
        x = nn.relu(nn.Dense(128)(x))
        adv, val = nn.Dense(4)(x), nn.Dense(1)(x)
        return val + adv - adv.mean(-1, keepdims=True)


def empty_replay():
    return Replay(
        obs=jnp.zeros((CAPACITY, OBS), jnp.float32),
        nxt=jnp.zeros((CAPACITY, OBS), jnp.float32),
        action=jnp.zeros(CAPACITY, jnp.int32),
        reward=jnp.zeros(CAPACITY),
        done=jnp.zeros(CAPACITY, bool),
        head=jnp.int32(0),
        filled=jnp.int32(0),
    )


@jax.jit
def remember(mem, obs, nxt, action, reward, done):
    rows = (mem.head + jnp.arange(ENVS)) % CAPACITY
    return Replay(
        mem.obs.at[rows].set(obs),
        mem.nxt.at[rows].set(nxt),
        mem.action.at[rows].set(action),
        mem.reward.at[rows].set(reward),
        mem.done.at[rows].set(done),
        (mem.head + ENVS) % CAPACITY,
        jnp.minimum(mem.filled + ENVS, CAPACITY),
    )


def observe(pos, goal):
    return jnp.concatenate([jax.nn.one_hot(pos, GRID * GRID), jax.nn.one_hot(goal, GRID * GRID)], axis=1)


@jax.jit
def env_step(pos, goal, age, action, key):
    k1, k2, k3, k4 = jax.random.split(key, 4)
    slip = jax.random.bernoulli(k1, 0.1, (ENVS,))
    action = jnp.where(slip, jax.random.randint(k2, (ENVS,), 0, 4), action)
    move = jnp.array([[0, 1], [0, -1], [1, 0], [-1, 0]])[action]
    xy = jnp.clip(jnp.stack([pos // GRID, pos % GRID], 1) + move, 0, GRID - 1)
    new = xy[:, 0] * GRID + xy[:, 1]
    won = new == goal
    over = won | (age >= 60)
    restart = jax.random.randint(k3, (ENVS,), 0, GRID * GRID)
    new_goal = jax.random.randint(k4, (ENVS,), 0, GRID * GRID)
    return (new, jnp.where(over, restart, new), jnp.where(over, new_goal, goal),
            jnp.where(over, 0, age + 1), jnp.where(won, 1.0, -0.01), won)


net, tx = QNet(), optax.adam(1e-3)


@jax.jit
def act(params, obs, key, eps):
    k1, k2 = jax.random.split(key)
    greedy = net.apply(params, obs).argmax(-1)
    return jnp.where(jax.random.bernoulli(k1, eps, (ENVS,)), jax.random.randint(k2, (ENVS,), 0, 4), greedy)


@jax.jit
def learn(params, target, opt, mem, key):
    rows = jax.random.randint(key, (BATCH,), 0, mem.filled)
    obs, nxt = mem.obs[rows], mem.nxt[rows]

    def loss_fn(p):
        best = net.apply(params, nxt).argmax(-1)
        q_next = jnp.take_along_axis(net.apply(target, nxt), best[:, None], 1)[:, 0]
        goal = mem.reward[rows] + GAMMA * q_next * (1.0 - mem.done[rows])
        q = jnp.take_along_axis(net.apply(p, obs), mem.action[rows][:, None], 1)[:, 0]
        return optax.huber_loss(q, jax.lax.stop_gradient(goal)).mean()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    upd, opt = tx.update(grads, opt)
    return optax.apply_updates(params, upd), opt, loss


def main():
    key = jax.random.key(0)
    params = net.init(key, jnp.zeros((1, OBS)))
    target, opt, mem = params, tx.init(params), empty_replay()
    pos, goal = jnp.arange(ENVS) % 100, (jnp.arange(ENVS) * 7 + 31) % 100
    age = jnp.zeros(ENVS, jnp.int32)
    rewards, start = [], time.perf_counter()
    for step in range(STEPS):
        key, ka, ke, kl = jax.random.split(key, 4)
        obs = observe(pos, goal)
        action = act(params, obs, ka, np.float32(max(0.05, 1.0 - step / 800)))
        landed, pos, new_goal, age, reward, done = env_step(pos, goal, age, action, ke)
        mem = remember(mem, obs, observe(landed, goal), action, reward, done)
        goal = new_goal
        params, opt, loss = learn(params, target, opt, mem, kl)
        rewards.append(reward)
        if step % TARGET_EVERY == TARGET_EVERY - 1:
            target = params
            recent = float(jnp.stack(rewards).mean())
            rewards.clear()
            print(f"step {step + 1}: reward {recent:.4f}  loss {float(loss):.4f}  {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
