"""Prioritised DQN on a batch of key-and-door grid worlds; image observations, replay in device memory."""
import time
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax

CFG = SimpleNamespace(envs=8, size=12, capacity=16384, batch=128, steps=500, learn_start=40,
                      gamma=0.97, lr=5e-4, tau=0.02, alpha=0.6, log_every=100)


class KeyDoor:
    """Agent must fetch the key, then reach the door. Observation: three planes."""
    MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def __init__(self, n, size, seed):
        self.n, self.size = n, size
        self.rng = np.random.default_rng(seed)
        self.pos = np.zeros((n, 2), int)
        self.key = np.zeros((n, 2), int)
        self.door = np.zeros((n, 2), int)
        self.has = np.zeros(n, bool)
        self.age = np.zeros(n, int)
        self._reset(np.ones(n, bool))

    def _reset(self, mask):
        k = int(mask.sum())
        for field in (self.pos, self.key, self.door):
            field[mask] = self.rng.integers(0, self.size, (k, 2))
        self.has[mask], self.age[mask] = False, 0

    def observe(self):
        obs = np.zeros((self.n, self.size, self.size, 3), np.float32)
        i = np.arange(self.n)
        obs[i, self.pos[:, 0], self.pos[:, 1], 0] = 1
        obs[i, self.key[:, 0], self.key[:, 1], 1] = ~self.has
        obs[i, self.door[:, 0], self.door[:, 1], 2] = 1 + self.has
        return obs

    def step(self, action):
        self.pos = np.clip(self.pos + self.MOVES[action], 0, self.size - 1)
        got = ~self.has & (self.pos == self.key).all(1)
        self.has |= got
        won = self.has & (self.pos == self.door).all(1)
        self.age += 1
        reward = (0.5 * got + 1.0 * won - 0.01).astype(np.float32)
        done = won | (self.age > 60)
        self._reset(done)
        return self.observe(), reward, done.astype(np.float32)


def init_params(key, size):
    sizes = [(size * size * 3, 64), (64, 64), (64, 4)]
    keys = jax.random.split(key, len(sizes))
    return [{"w": jax.random.normal(k, s) * s[0] ** -0.5, "b": jnp.zeros(s[1])} for k, s in zip(keys, sizes)]


def q_values(params, obs):
    h = obs.reshape(obs.shape[0], -1)
    for layer in params[:-1]:
        h = jax.nn.relu(h @ layer["w"] + layer["b"])
    return h @ params[-1]["w"] + params[-1]["b"]


def init_replay(cfg):
    shape = (cfg.capacity, cfg.size, cfg.size, 3)
    return {"obs": jnp.zeros(shape), "action": jnp.zeros(cfg.capacity, jnp.int32),
            "reward": jnp.zeros(cfg.capacity), "next_obs": jnp.zeros(shape), "done": jnp.zeros(cfg.capacity)}


@jax.jit
def insert(replay, cursor, items):
    return jax.tree.map(lambda buf, x: jax.lax.dynamic_update_slice_in_dim(buf, x, cursor, 0), replay, items)


@jax.jit
def act(params, obs, key, epsilon):
    key, k1, k2 = jax.random.split(key, 3)
    greedy = q_values(params, obs).argmax(-1)
    rand = jax.random.randint(k1, greedy.shape, 0, 4)
    return jnp.where(jax.random.uniform(k2, greedy.shape) < epsilon, rand, greedy), key


opt = optax.adam(CFG.lr)


@partial(jax.jit, donate_argnums=(0, 1, 2))
def learn(params, target, opt_state, replay, idx, weights):
    batch = jax.tree.map(lambda buf: buf[idx], replay)

    def loss_fn(p):
        q = jnp.take_along_axis(q_values(p, batch["obs"]), batch["action"][:, None], 1)[:, 0]
        best = q_values(p, batch["next_obs"]).argmax(-1)
        nxt = jnp.take_along_axis(q_values(target, batch["next_obs"]), best[:, None], 1)[:, 0]
        td = jax.lax.stop_gradient(batch["reward"] + CFG.gamma * (1 - batch["done"]) * nxt) - q
        return jnp.mean(weights * optax.huber_loss(td)), td

    (loss, td), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
    updates, opt_state = opt.update(grads, opt_state)
    params = optax.apply_updates(params, updates)
    target = optax.incremental_update(params, target, CFG.tau)
    return params, target, opt_state, loss, td


def main(cfg=CFG):
    env = KeyDoor(cfg.envs, cfg.size, 0)
    rng = np.random.default_rng(1)
    key = jax.random.key(2)
    params = init_params(key, cfg.size)
    target = jax.tree.map(jnp.copy, params)
    opt_state = opt.init(params)
    replay = init_replay(cfg)
    priority = np.zeros(cfg.capacity, np.float32)
    obs, filled, total = env.observe(), 0, 0.0
    start = time.perf_counter()
    for step in range(cfg.steps):
        epsilon = np.float32(max(0.05, 1 - step / (0.6 * cfg.steps)))
        action, key = act(params, obs, key, epsilon)
        action = np.asarray(action)
        next_obs, reward, done = env.step(action)
        cursor = (step * cfg.envs) % cfg.capacity
        items = {"obs": obs, "action": action, "reward": reward, "next_obs": next_obs, "done": done}
        replay = insert(replay, cursor, items)
        priority[cursor:cursor + cfg.envs] = priority.max() or 1.0
        filled = min(filled + cfg.envs, cfg.capacity)
        obs, total = next_obs, total + float(reward.sum())
        if step < cfg.learn_start:
            continue
        prob = priority[:filled] ** cfg.alpha
        prob /= prob.sum()
        idx = rng.choice(filled, cfg.batch, p=prob)
        weights = (filled * prob[idx]) ** -0.4
        params, target, opt_state, loss, td = learn(params, target, opt_state, replay, idx, weights / weights.max())
        for i, err in zip(idx, td):
            priority[i] = abs(float(err)) + 1e-3
        if step % cfg.log_every == 0:
            print(f"step {step:5d}  loss {float(loss):.4f}  return/env {total / cfg.envs:.2f}  {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
