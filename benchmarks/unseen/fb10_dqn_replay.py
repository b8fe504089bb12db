"""Double DQN from pixels on "catch": everything (games, replay memory, learner) lives in JAX."""
from functools import partial
import time

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax import struct

ROWS, COLS, GAMES = 20, 12, 8
CAPACITY, BATCH, WARM = 40_000, 16, 100
STEPS, TARGET_EVERY = 900, 50


@struct.dataclass
class Game:
    row: jax.Array
    col: jax.Array
    paddle: jax.Array
    key: jax.Array


@struct.dataclass
class Memory:
    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    done: jax.Array
    next_obs: jax.Array
    head: jax.Array

    @classmethod
    def empty(cls):
        frames = lambda: jnp.zeros((CAPACITY, ROWS, COLS), jnp.uint8)
        action = jnp.zeros(CAPACITY, jnp.int32)
        return cls(frames(), action, jnp.zeros(CAPACITY), jnp.zeros(CAPACITY), frames(), jnp.int32(0))


def fresh(key):
    k, key = jax.random.split(key)
    col, paddle = jax.random.randint(k, (2,), 0, COLS)
    return Game(jnp.int32(0), col, paddle, key)


def picture(g):
    board = jnp.zeros((ROWS, COLS), jnp.uint8)
    return board.at[g.row, g.col].set(255).at[ROWS - 1, g.paddle].set(128)


def play(g, action):
    paddle = jnp.clip(g.paddle + action - 1, 0, COLS - 1)
    moved = g.replace(row=g.row + 1, paddle=paddle)
    done = moved.row == ROWS - 1
    reward = jnp.where(done, jnp.where(moved.col == paddle, 1.0, -1.0), 0.0)
    after = jax.tree.map(lambda a, b: jnp.where(done, a, b), fresh(g.key), moved)
    return after, reward, done.astype(jnp.float32)


class QNet(nn.Module):
    @nn.compact
    def __call__(self, frames):
        x = frames.reshape(frames.shape[0], -1).astype(jnp.float32) / 255.0
        x = nn.relu(nn.Dense(96)(x))
        return nn.Dense(3)(nn.relu(nn.Dense(48)(x)))


net = QNet()
tx = optax.adam(1e-3)


@jax.jit
def act(params, games, key, epsilon):
    k1, k2 = jax.random.split(key)
    frames = jax.vmap(picture)(games)
    greedy = net.apply(params, frames).argmax(-1)
    action = jnp.where(jax.random.uniform(k1, (GAMES,)) < epsilon, jax.random.randint(k2, (GAMES,), 0, 3), greedy)
    after, reward, done = jax.vmap(play)(games, action)
    return after, (frames, action, reward, done, jax.vmap(picture)(after))


@jax.jit
def remember(memory, transition):
    at = (memory.head + jnp.arange(GAMES)) % CAPACITY
    obs, action, reward, done, next_obs = transition
    return Memory(memory.obs.at[at].set(obs), memory.action.at[at].set(action), memory.reward.at[at].set(reward),
                  memory.done.at[at].set(done), memory.next_obs.at[at].set(next_obs), memory.head + GAMES)


@jax.jit
def learn(params, target, opt_state, memory, key):
    idx = jax.random.randint(key, (BATCH,), 0, jnp.minimum(memory.head, CAPACITY))

    def loss_fn(p):
        q = jnp.take_along_axis(net.apply(p, memory.obs[idx]), memory.action[idx][:, None], 1)[:, 0]
        best = net.apply(p, memory.next_obs[idx]).argmax(-1)
        nxt = jnp.take_along_axis(net.apply(target, memory.next_obs[idx]), best[:, None], 1)[:, 0]
        goal = memory.reward[idx] + 0.97 * (1 - memory.done[idx]) * jax.lax.stop_gradient(nxt)
        return optax.huber_loss(q, goal).mean()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


def main():
    keys = jax.random.split(jax.random.key(0), STEPS + 2)
    games = jax.vmap(fresh)(jax.random.split(keys[-1], GAMES))
    params = net.init(keys[-2], jnp.zeros((1, ROWS, COLS), jnp.uint8))
    target, opt_state, memory = params, tx.init(params), Memory.empty()
    score = jnp.float32(0.0)
    tic = time.perf_counter()
    for step in range(STEPS):
        k1, k2 = jax.random.split(keys[step])
        games, transition = act(params, games, k1, max(0.05, 1.0 - step / 400))
        memory = remember(memory, transition)
        score = score + transition[2].sum()
        if step >= WARM:
            params, opt_state, loss = learn(params, target, opt_state, memory, k2)
        if step % TARGET_EVERY == 0:
            target = params
        if step % 150 == 149:
            print(f"step {step + 1}: score of the last 150 {float(score):+.0f}, {step / (time.perf_counter() - tic):.0f} steps/s")
            score = jnp.float32(0.0)


if __name__ == "__main__":
    main()
