"""Double DQN on a small "energy storage" environment (buy low, sell high), flax.nnx + optax."""
import time
from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

N_ACTIONS = 5
HORIZON = 96
WINDOW = 12


class StorageEnv:
    """A battery that trades on a noisy daily price curve."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.power = np.linspace(-1.0, 1.0, N_ACTIONS)

    def reset(self):
        t = np.arange(HORIZON + WINDOW)
        phase = self.rng.uniform(0, 2 * np.pi)
        self.price = 1 + 0.6 * np.sin(2 * np.pi * t / 24 + phase) + 0.15 * self.rng.normal(size=t.size)
        self.t, self.charge = 0, 0.5
        return self._obs()

    def _obs(self):
        recent = self.price[self.t : self.t + WINDOW]
        return np.concatenate([recent, [self.charge, self.t / HORIZON]]).astype(np.float32)

    def step(self, action):
        want = 0.2 * self.power[action]
        moved = np.clip(self.charge + want, 0.0, 1.0) - self.charge
        reward = -moved * self.price[self.t + WINDOW - 1] - 0.02 * abs(moved)
        self.charge += moved
        self.t += 1
        return self._obs(), 5.0 * reward, self.t == HORIZON


class DuelingNet(nnx.Module):
    def __init__(self, obs_dim, width, rngs):
        self.fc1 = nnx.Linear(obs_dim, width, rngs=rngs)
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.fc2 = nnx.Linear(width, width, rngs=rngs)
        self.value = nnx.Linear(width, 1, rngs=rngs)
        self.advantage = nnx.Linear(width, N_ACTIONS, rngs=rngs)

    def __call__(self, obs):
        h = nnx.relu(self.norm(self.fc1(obs)))
        h = nnx.relu(self.fc2(h))
        adv = self.advantage(h)
        return self.value(h) + adv - adv.mean(-1, keepdims=True)


class Replay:
    def __init__(self, capacity, obs_dim):
        self.obs = np.zeros((capacity, obs_dim), np.float32)
        self.nxt = np.zeros((capacity, obs_dim), np.float32)
        self.act = np.zeros(capacity, np.int32)
        self.rew = np.zeros(capacity, np.float32)
        self.done = np.zeros(capacity, np.float32)
        self.size, self.head, self.capacity = 0, 0, capacity

    def add(self, o, a, r, n, d):
        i = self.head
        self.obs[i], self.act[i], self.rew[i], self.nxt[i], self.done[i] = o, a, r, n, d
        self.head = (i + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, rng, n):
        i = rng.integers(0, self.size, n)
        return self.obs[i], self.act[i], self.rew[i], self.nxt[i], self.done[i]


@nnx.jit
def learn(online, target, optimizer, batch, gamma):
    obs, act, rew, nxt, done = batch

    def td_loss(net):
        q = jnp.take_along_axis(net(obs), act[:, None], 1)[:, 0]
        best = jnp.argmax(net(nxt), -1)
        q_next = jnp.take_along_axis(target(nxt), best[:, None], 1)[:, 0]
        goal = jax.lax.stop_gradient(rew + gamma * (1 - done) * q_next)
        return optax.huber_loss(q, goal).mean()

    loss, grads = nnx.value_and_grad(td_loss)(online)
    optimizer.update(online, grads)
    return loss


class Agent:
    def __init__(self, obs_dim, seed=0):
        self.online = DuelingNet(obs_dim, 128, nnx.Rngs(seed))
        self.target = nnx.clone(self.online)
        tx = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(5e-4))
        self.optimizer = nnx.Optimizer(self.online, tx, wrt=nnx.Param)
        self.rng = np.random.default_rng(seed)

    def act(self, obs, epsilon):
        if self.rng.random() < epsilon:
            return int(self.rng.integers(N_ACTIONS))
        return int(jnp.argmax(self.online(obs[None]), -1)[0])

    def train(self, replay, batch_size):
        batch = replay.sample(self.rng, batch_size)
        return learn(self.online, self.target, self.optimizer, batch, 0.98)

    def sync_target(self):
        nnx.update(self.target, nnx.state(self.online))


def main(episodes=110, train_every=4):
    env = StorageEnv(1)
    obs = env.reset()
    agent = Agent(obs.size)
    replay = Replay(20_000, obs.size)
    returns = deque(maxlen=20)
    step, begin = 0, time.time()
    for episode in range(episodes):
        epsilon = max(0.05, 1.0 - 2.0 * episode / episodes)
        obs, total, done, losses = env.reset(), 0.0, False, []
        while not done:
            action = agent.act(obs, epsilon)
            nxt, reward, done = env.step(action)
            replay.add(obs, action, reward, nxt, float(done))
            obs, total, step = nxt, total + reward, step + 1
            if replay.size >= 500 and step % train_every == 0:
                losses.append(agent.train(replay, 64))
            if step % 400 == 0:
                agent.sync_target()
        returns.append(total)
        if (episode + 1) % 10 == 0:
            td = float(jnp.stack(losses).mean())
            print(f"episode {episode + 1:3d}  eps {epsilon:.2f}  return(20) {np.mean(returns):6.2f}  td {td:.4f}")
    print(f"{step} env steps in {time.time() - begin:.1f}s")


if __name__ == "__main__":
    main()
