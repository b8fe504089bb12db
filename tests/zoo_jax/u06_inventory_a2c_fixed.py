"""Advantage actor-critic for a small warehouse: how much to reorder each day (plain jax + optax)."""
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

N_SHOPS = 16
HORIZON = 40
ITERATIONS = 240
ORDERS = np.array([0, 4, 8, 16], np.float32)
GAMMA, LAM = 0.97, 0.9


class Warehouse:
    """Vectorised NumPy environment; one row per shop."""

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.n = n
        self.reset()

    def reset(self):
        self.stock = self.rng.uniform(5, 15, self.n).astype(np.float32)
        self.transit = np.zeros((self.n, 2), np.float32)
        self.season = self.rng.uniform(0, 7, self.n).astype(np.float32)
        return self.observe()

    def observe(self):
        phase = 2 * np.pi * self.season / 7
        return np.stack([self.stock / 20, self.transit[:, 0] / 16, self.transit[:, 1] / 16,
                         np.sin(phase), np.cos(phase)], axis=1).astype(np.float32)

    def step(self, action):
        self.stock = np.minimum(self.stock + self.transit[:, 0], 40)
        self.transit = np.stack([self.transit[:, 1], ORDERS[action]], axis=1)
        demand = self.rng.poisson(5 + 3 * np.sin(2 * np.pi * self.season / 7)).astype(np.float32)
        sold = np.minimum(self.stock, demand)
        self.stock -= sold
        self.season = (self.season + 1) % 7
        reward = sold - 0.05 * self.stock - 0.5 * (demand - sold)
        return self.observe(), reward / 5


class Rollout(NamedTuple):
    obs: jax.Array
    actions: jax.Array
    rewards: jax.Array
    values: jax.Array
    last_value: jax.Array


def dense_init(key, n_in, n_out, scale=1.0):
    return {"w": scale * jax.random.normal(key, (n_in, n_out)) / np.sqrt(n_in), "b": jnp.zeros(n_out)}


def init_params(key, width=48):
    keys = jax.random.split(key, 4)
    return {"body": [dense_init(keys[0], 5, width), dense_init(keys[1], width, width)],
            "policy": dense_init(keys[2], width, len(ORDERS), 0.1),
            "value": dense_init(keys[3], width, 1)}


def dense(layer, x):
    return x @ layer["w"] + layer["b"]


def actor_critic(params, obs):
    h = obs
    for layer in params["body"]:
        h = jnp.tanh(dense(layer, h))
    return dense(params["policy"], h), dense(params["value"], h)[..., 0]


@jax.jit
def choose(params, key, obs):
    logits, value = actor_critic(params, obs)
    return jax.random.categorical(jax.random.wrap_key_data(key), logits), value


@jax.jit
def gae(rewards, values, last_value):
    """Generalised advantage estimate, backwards through the rollout."""
    def turn(carry, row):
        reward, value, following = row
        carry = reward + GAMMA * following - value + GAMMA * LAM * carry
        return carry, carry

    following = jnp.concatenate([values[1:], last_value[None]])
    return jax.lax.scan(turn, jnp.zeros_like(last_value), (rewards, values, following), reverse=True)[1]


def collect(params, env, obs, key):
    seen, actions, rewards, values = [], [], [], []
    keys = iter(np.asarray(jax.random.key_data(jax.random.split(key, HORIZON + 1))))
    for _ in range(HORIZON):
        action, value = choose(params, next(keys), obs)
        seen.append(obs)
        obs, reward = env.step(np.asarray(action))
        actions.append(np.asarray(action))
        rewards.append(reward)
        values.append(np.asarray(value))
    _, last_value = choose(params, next(keys), obs)
    return obs, Rollout(np.stack(seen), np.stack(actions), np.stack(rewards), np.stack(values), last_value)


def a2c_loss(params, roll, advantages):
    logits, values = actor_critic(params, roll.obs)
    log_p = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(log_p, roll.actions[..., None], axis=-1)[..., 0]
    entropy = -jnp.sum(jnp.exp(log_p) * log_p, axis=-1).mean()
    normed = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
    critic = jnp.mean((values - advantages - roll.values) ** 2)
    return -jnp.mean(chosen * normed) + 0.5 * critic - 0.01 * entropy


def make_update(tx):
    @jax.jit
    def update(params, opt_state, roll, advantages):
        loss, grads = jax.value_and_grad(a2c_loss)(params, roll, advantages)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    return update


def main():
    env = Warehouse(N_SHOPS, seed=4)
    key = jax.random.key(4)
    params = init_params(key)
    tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-3))
    opt_state = tx.init(params)
    update = make_update(tx)
    obs = env.reset()
    t0 = time.perf_counter()
    for it in range(1, ITERATIONS + 1):
        key, sub = jax.random.split(key)
        obs, roll = collect(params, env, obs, sub)
        advantages = gae(jnp.asarray(roll.rewards), roll.values, roll.last_value)
        params, opt_state, loss = update(params, opt_state, roll, advantages)
        if it % 40 == 0:
            print(f"iteration {it:4d} reward {roll.rewards.mean():.3f} loss {float(loss):.3f} "
                  f"{it * HORIZON / (time.perf_counter() - t0):.0f} days/s")


if __name__ == "__main__":
    main()
