"""Double DQN on a small warehouse grid: a robot sees a depth strip and has to reach its shelf."""
import dataclasses
import time
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax


@dataclasses.dataclass(frozen=True)
class Config:
    grid: int = 9
    strip: int = 96
    capacity: int = 40_000
    batch: int = 32
    warmup: int = 200
    steps: int = 1500
    target_every: int = 250
    gamma: float = 0.97
    lr: float = 5e-4
    report: int = 300


class Warehouse:
    MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))

    def __init__(self, cfg, seed):
        self.cfg = cfg
        self.rng = np.random.default_rng(seed)
        self.angles = np.linspace(0, 2 * np.pi, cfg.strip, endpoint=False)

    def reset(self):
        self.pos, self.goal = self.rng.integers(0, self.cfg.grid, (2, 2))
        self.t = 0
        return self.observe()

    def observe(self):
        d = self.goal - self.pos
        strip = np.cos(self.angles) * d[0] + np.sin(self.angles) * d[1]
        return (strip / self.cfg.grid).astype(np.float32)

    def step(self, action):
        before = np.abs(self.goal - self.pos).sum()
        self.pos = np.clip(self.pos + self.MOVES[action], 0, self.cfg.grid - 1)
        after = np.abs(self.goal - self.pos).sum()
        self.t += 1
        done = after == 0 or self.t >= 40
        return self.observe(), float(before - after) - 0.1, bool(done)


class QNet(nn.Module):
    actions: int = 4

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(64)(x))
        x = nn.relu(nn.Dense(64)(x))
        return nn.Dense(self.actions)(x)


class Replay(NamedTuple):
    obs: jax.Array
    nxt: jax.Array
    action: jax.Array
    reward: jax.Array
    done: jax.Array
    head: jax.Array

    @classmethod
    def empty(cls, cfg):
        n = cfg.capacity
        return cls(jnp.zeros((n, cfg.strip)), jnp.zeros((n, cfg.strip)), jnp.zeros(n, jnp.int32),
                   jnp.zeros(n), jnp.zeros(n), jnp.zeros((), jnp.int32))


@jax.jit
def remember(buf, obs, nxt, action, reward, done):
    i = buf.head % buf.action.shape[0]
    return Replay(buf.obs.at[i].set(obs), buf.nxt.at[i].set(nxt), buf.action.at[i].set(action),
                  buf.reward.at[i].set(reward), buf.done.at[i].set(done), buf.head + 1)


def make_learner(cfg, net, tx):
    @jax.jit
    def act(params, obs, key, eps):
        ka, kb = jax.random.split(key)
        greedy = net.apply(params, obs[None])[0].argmax()
        rand = jax.random.randint(ka, (), 0, 4)
        return jnp.where(jax.random.uniform(kb) < eps, rand, greedy)

    @jax.jit
    def learn(params, target, opt, buf, key):
        size = jnp.minimum(buf.head, cfg.capacity)
        idx = jax.random.randint(key, (cfg.batch,), 0, size)

        def loss_fn(p):
            q = jnp.take_along_axis(net.apply(p, buf.obs[idx]), buf.action[idx][:, None], 1)[:, 0]
            best = net.apply(p, buf.nxt[idx]).argmax(-1)
            boot = jnp.take_along_axis(net.apply(target, buf.nxt[idx]), best[:, None], 1)[:, 0]
            y = buf.reward[idx] + cfg.gamma * (1 - buf.done[idx]) * jax.lax.stop_gradient(boot)
            return optax.huber_loss(q, y).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, loss

    return act, learn


def main():
    cfg = Config()
    env = Warehouse(cfg, 0)
    net, tx = QNet(), optax.adam(cfg.lr)
    key = jax.random.key(0)
    params = net.init(key, jnp.zeros((1, cfg.strip)))
    target, opt = params, tx.init(params)
    act, learn = make_learner(cfg, net, tx)
    buf = Replay.empty(cfg)
    keys = jax.device_get(jax.random.key_data(jax.random.split(key, 2 * cfg.steps)))
    eps_plan = np.linspace(1.0, 0.05, cfg.steps).astype(np.float32)

    obs, score, scores, loss = env.reset(), 0.0, [], None
    began = time.time()
    for step in range(cfg.steps):
        action = int(act(params, obs, jax.random.wrap_key_data(keys[2 * step]), eps_plan[step]))
        nxt, reward, done = env.step(action)
        buf = remember(buf, obs, nxt, np.int32(action), np.float32(reward), np.float32(done))
        obs, score = nxt, score + reward
        if done:
            scores.append(score)
            obs, score = env.reset(), 0.0
        if step >= cfg.warmup and step % 2 == 0:
            params, opt, loss = learn(params, target, opt, buf, jax.random.wrap_key_data(keys[2 * step + 1]))
        if step % cfg.target_every == 0:
            target = params
        if step and step % cfg.report == 0:
            print(f"{step:5d} score {np.mean(scores[-20:]):6.2f} loss {float(loss):.4f} {time.time() - began:.1f}s")
    print("episodes", len(scores), "last", np.mean(scores[-20:]))


if __name__ == "__main__":
    main()
