"""DQN on a small "collect the coins" grid world; environment in numpy, Q-network in flax.linen."""
import dataclasses
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

GRID, COINS, HORIZON = 8, 6, 40


@dataclasses.dataclass
class Config:
    episodes: int = 40
    warmup: int = 300
    batch: int = 64
    capacity: int = 6000
    gamma: float = 0.95
    eps_end: float = 0.05


class CoinWorld:
    """The agent walks on a torus and picks up coins; it sees the coins around itself and the time."""
    MOVES = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        cells = self.rng.permutation(GRID * GRID)[:COINS + 1]
        self.pos = np.array(divmod(cells[0], GRID))
        self.coins = np.isin(np.arange(GRID * GRID), cells[1:]).reshape(GRID, GRID).astype(np.float32)
        self.t = 0
        return self.observe()

    def observe(self):
        centred = np.roll(self.coins, (GRID // 2 - self.pos[0], GRID // 2 - self.pos[1]), (0, 1))
        return np.append(centred.ravel(), np.float32(self.t / HORIZON)).astype(np.float32)

    def step(self, action):
        self.pos = (self.pos + self.MOVES[action]) % GRID
        reward = float(self.coins[tuple(self.pos)])
        self.coins[tuple(self.pos)] = 0.0
        self.t += 1
        return self.observe(), reward - 0.02, self.t >= HORIZON or not self.coins.any()


class QNet(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(128)(nn.relu(nn.Dense(128)(x))))
        return nn.Dense(1)(x) + nn.Dense(4)(x)


class Replay:
    def __init__(self, capacity, obs_dim):
        self.obs = jnp.zeros((capacity, obs_dim))
        self.next_obs = jnp.zeros((capacity, obs_dim))
        self.action = jnp.zeros(capacity, jnp.int32)
        self.reward = jnp.zeros(capacity)
        self.done = jnp.zeros(capacity)
        self.capacity, self.count = capacity, 0

    def add(self, obs, action, reward, next_obs, done):
        i = self.count % self.capacity
        self.obs = self.obs.at[i].set(obs)
        self.next_obs = self.next_obs.at[i].set(next_obs)
        self.action = self.action.at[i].set(action)
        self.reward = self.reward.at[i].set(reward)
        self.done = self.done.at[i].set(float(done))
        self.count += 1

    def sample(self, rng, n):
        idx = rng.integers(0, min(self.count, self.capacity), n)
        return self.obs[idx], self.action[idx], self.reward[idx], self.next_obs[idx], self.done[idx]


cfg, net = Config(), QNet()
tx = optax.adam(1e-3)


@partial(jax.jit, static_argnames=("epsilon",))
def act(params, obs, key, epsilon):
    k1, k2 = jax.random.split(key)
    greedy = net.apply(params, obs).argmax()
    return jnp.where(jax.random.uniform(k1) < epsilon, jax.random.randint(k2, (), 0, 4), greedy)


@jax.jit
def learn(params, target, opt_state, batch):
    obs, action, reward, next_obs, done = batch
    best = net.apply(params, next_obs).argmax(-1)
    bootstrap = jnp.take_along_axis(net.apply(target, next_obs), best[:, None], 1)[:, 0]
    goal = reward + cfg.gamma * (1 - done) * bootstrap

    def loss_fn(p):
        q = jnp.take_along_axis(net.apply(p, obs), action[:, None], 1)[:, 0]
        return optax.huber_loss(q, goal).mean()
    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


def main():
    env, rng, key = CoinWorld(0), np.random.default_rng(0), jax.random.key(0)
    obs = env.reset()
    params = target = net.init(key, obs)
    opt_state, replay = tx.init(params), Replay(cfg.capacity, obs.size)
    steps, returns, loss = 0, [], jnp.zeros(())
    for episode in range(cfg.episodes):
        epsilon = max(cfg.eps_end, 1.0 - episode / (0.8 * cfg.episodes))
        obs, done, total = env.reset(), False, 0.0
        while not done:
            action = int(act(params, obs, jax.random.fold_in(key, steps), epsilon))
            next_obs, reward, done = env.step(action)
            replay.add(obs, action, reward, next_obs, done)
            obs, total, steps = next_obs, total + reward, steps + 1
            if steps > cfg.warmup and steps % 2 == 0:
                params, opt_state, loss = learn(params, target, opt_state, replay.sample(rng, cfg.batch))
            if steps % 200 == 0:
                target = params
        returns.append(total)
        if episode % 10 == 9:
            print(f"episode {episode + 1}: eps {epsilon:.2f}  return {np.mean(returns[-10:]):.2f}  loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
