"""Double Q-learning for inventory control of a perishable product with lead time.

State: stock by remaining shelf life, orders in transit, weekday. Action: order quantity.
Many stores are simulated at once; transitions go to a replay buffer that lives on the device.
"""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

STORES, LIFE, LEAD, ACTIONS = 16, 4, 2, 9
OBS = LIFE + LEAD + 7
CAPACITY, BATCH = 1_000_000, 128
PRICE, COST, HOLD, WASTE = 4.0, 2.0, 0.05, 1.0
GAMMA = 0.9


class EnvState(NamedTuple):
    stock: jax.Array     # (stores, LIFE), oldest first
    transit: jax.Array   # (stores, LEAD), next arrival first
    day: jax.Array


class Replay(NamedTuple):
    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    next_obs: jax.Array
    head: jax.Array
    size: jax.Array


def empty_replay():
    return Replay(jnp.zeros((CAPACITY, OBS)), jnp.zeros(CAPACITY, jnp.int32), jnp.zeros(CAPACITY),
                  jnp.zeros((CAPACITY, OBS)), jnp.array(0), jnp.array(0))


def observe(s):
    week = jnp.broadcast_to(jax.nn.one_hot(s.day % 7, 7), (STORES, 7))
    return jnp.concatenate([s.stock / 10, s.transit / 10, week], axis=1)


def env_step(s, action, key):
    demand = jax.random.poisson(key, 4.0 + 2.0 * (s.day % 7 >= 5), (STORES,)).astype(jnp.float32)
    served_before = jnp.cumsum(s.stock, 1) - s.stock
    sold = jnp.clip(demand[:, None] - served_before, 0, s.stock)
    left = s.stock - sold
    waste = left[:, 0]
    stock = jnp.concatenate([left[:, 1:], s.transit[:, :1]], axis=1)
    transit = jnp.concatenate([s.transit[:, 1:], action[:, None].astype(jnp.float32)], axis=1)
    reward = PRICE * sold.sum(1) - COST * action - HOLD * left.sum(1) - WASTE * waste
    return EnvState(stock, transit, s.day + 1), reward / 10


def init_net(key, sizes=(OBS, 64, 64, ACTIONS)):
    keys = jax.random.split(key, len(sizes) - 1)
    return [(jax.random.normal(k, (i, o)) * jnp.sqrt(2.0 / i), jnp.zeros(o))
            for k, i, o in zip(keys, sizes[:-1], sizes[1:])]


def q_values(net, obs):
    for w, b in net[:-1]:
        obs = jax.nn.relu(obs @ w + b)
    w, b = net[-1]
    return obs @ w + b


@jax.jit
def act(net, state, key, epsilon):
    k1, k2, k3 = jax.random.split(key, 3)
    obs = observe(state)
    greedy = jnp.argmax(q_values(net, obs), axis=1)
    explore = jax.random.uniform(k1, (STORES,)) < epsilon
    action = jnp.where(explore, jax.random.randint(k2, (STORES,), 0, ACTIONS), greedy)
    new_state, reward = env_step(state, action, k3)
    return new_state, (obs, action, reward, observe(new_state))


@jax.jit
def store(replay, transition):
    obs, action, reward, next_obs = transition
    rows = (replay.head + jnp.arange(STORES)) % CAPACITY
    return Replay(replay.obs.at[rows].set(obs), replay.action.at[rows].set(action),
                  replay.reward.at[rows].set(reward), replay.next_obs.at[rows].set(next_obs),
                  (replay.head + STORES) % CAPACITY, jnp.minimum(replay.size + STORES, CAPACITY))


optimizer = optax.adam(2e-3)


@jax.jit
def learn(net, target, opt_state, replay, key):
    idx = jax.random.randint(key, (BATCH,), 0, replay.size)
    obs, action, reward, next_obs = (a[idx] for a in replay[:4])
    best = jnp.argmax(q_values(net, next_obs), axis=1)
    goal = reward + GAMMA * jnp.take_along_axis(q_values(target, next_obs), best[:, None], 1)[:, 0]

    def loss_fn(net):
        q = jnp.take_along_axis(q_values(net, obs), action[:, None], 1)[:, 0]
        return optax.huber_loss(q, goal).mean()

    loss, grads = jax.value_and_grad(loss_fn)(net)
    updates, opt_state = optimizer.update(grads, opt_state)
    net = optax.apply_updates(net, updates)
    target = optax.incremental_update(net, target, 0.05)
    return net, target, opt_state, loss


def main(steps=450):
    key = jax.random.key(1)
    key, sub = jax.random.split(key)
    net = init_net(sub)
    target, opt_state, replay = net, optimizer.init(net), empty_replay()
    state = EnvState(jnp.full((STORES, LIFE), 2.0, jnp.float32),
                     jnp.full((STORES, LEAD), 4.0, jnp.float32), jnp.array(0))
    rewards, losses = [], []
    for step in range(steps):
        key, k_act, k_learn = jax.random.split(key, 3)
        epsilon = max(0.05, 1.0 - step / 300)
        state, transition = act(net, state, k_act, epsilon)
        replay = store(replay, transition)
        rewards.append(transition[2])
        if step >= 50:
            net, target, opt_state, loss = learn(net, target, opt_state, replay, k_learn)
            losses.append(loss)
        if step % 90 == 89:
            print(f"day {step + 1:5d}  reward per store and day {10 * float(jnp.stack(rewards).mean()):6.2f}  "
                  f"loss {float(jnp.stack(losses).mean()):.4f}  epsilon {epsilon:.2f}")
            rewards, losses = [], []
    print("transitions stored:", int(replay.size))


if __name__ == "__main__":
    main()
