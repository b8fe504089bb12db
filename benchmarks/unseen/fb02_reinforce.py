"""REINFORCE with a learned baseline on a small balancing task whose simulator is written in NumPy."""
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax


@dataclass
class Config:
    updates: int = 12
    episodes_per_update: int = 3
    max_steps: int = 120
    gamma: float = 0.98
    lr: float = 4e-3
    hidden: int = 64


class PoleEnv:
    """Cart and pole, Euler steps of 20 ms; the episode ends when the pole falls or the cart runs off."""

    def __init__(self, seed, max_steps):
        self.rng = np.random.default_rng(seed)
        self.max_steps = max_steps

    def reset(self):
        self.t = 0
        self.s = self.rng.uniform(-0.05, 0.05, 4).astype(np.float32)
        return self.s

    def step(self, action):
        x, v, th, w = self.s
        force = 10.0 if action == 1 else -10.0
        c, s = np.cos(th), np.sin(th)
        tmp = (force + 0.05 * w * w * s) / 1.1
        wacc = (9.8 * s - c * tmp) / (0.5 * (4.0 / 3.0 - 0.1 * c * c / 1.1))
        vacc = tmp - 0.05 * wacc * c / 1.1
        self.s = np.array([x + 0.02 * v, v + 0.02 * vacc, th + 0.02 * w, w + 0.02 * wacc], np.float32)
        self.t += 1
        fell = abs(self.s[0]) > 2.4 or abs(self.s[2]) > 0.21
        return self.s, 1.0, fell or self.t >= self.max_steps


def init_mlp(key, sizes):
    params = []
    for k, (i, o) in zip(jax.random.split(key, len(sizes) - 1), zip(sizes[:-1], sizes[1:])):
        params.append({"w": jax.random.normal(k, (i, o)) * (1.0 / i) ** 0.5, "b": jnp.zeros(o)})
    return params


def mlp(params, x):
    for layer in params[:-1]:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


@jax.jit
def act(params, obs, key):
    key, sub = jax.random.split(key)
    return jax.random.categorical(sub, mlp(params["pi"], obs)), key


def loss_fn(params, obs, actions, returns):
    logp = jax.nn.log_softmax(mlp(params["pi"], obs))
    chosen = jnp.take_along_axis(logp, actions[:, None], 1)[:, 0]
    value = mlp(params["v"], obs)[:, 0]
    adv = jax.lax.stop_gradient(returns - value)
    adv = (adv - adv.mean()) / (adv.std() + 1e-6)
    entropy = -(jnp.exp(logp) * logp).sum(-1).mean()
    return -(chosen * adv).mean() + 0.5 * ((returns - value) ** 2).mean() / 100.0 - 0.01 * entropy


@partial(jax.jit, static_argnums=0)
def update(tx, params, opt_state, obs, actions, returns):
    loss, grads = jax.value_and_grad(loss_fn)(params, obs, actions, returns)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def discounted(rewards, gamma):
    total, out = 0.0, []
    for r in reversed(rewards):
        total = r + gamma * total
        out.append(total)
    return np.array(out[::-1], np.float32)


def play(env, params, key):
    obs, done = env.reset(), False
    seen, actions, rewards = [], [], []
    while not done:
        a, key = act(params, obs, key)
        a = int(a)
        seen.append(obs)
        actions.append(a)
        obs, r, done = env.step(a)
        rewards.append(r)
    return seen, actions, rewards, key


def main(cfg=Config()):
    env = PoleEnv(0, cfg.max_steps)
    k1, k2, key = jax.random.split(jax.random.key(0), 3)
    params = {"pi": init_mlp(k1, [4, cfg.hidden, cfg.hidden, 2]), "v": init_mlp(k2, [4, cfg.hidden, 1])}
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(cfg.lr))
    opt_state = tx.init(params)
    lengths = []
    for u in range(cfg.updates):
        obs, actions, returns = [], [], []
        for _ in range(cfg.episodes_per_update):
            seen, acts, rewards, key = play(env, params, key)
            obs += seen
            actions += acts
            returns.append(discounted(rewards, cfg.gamma))
            lengths.append(len(rewards))
        batch = (np.array(obs, np.float32), np.array(actions, np.int32), np.concatenate(returns))
        params, opt_state, loss = update(tx, params, opt_state, *batch)
        if u % 3 == 2:
            print(f"update {u + 1:3d}  loss {float(loss):+.3f}  mean length {np.mean(lengths[-24:]):.1f}")
    print("best episode", max(lengths))


if __name__ == "__main__":
    main()
