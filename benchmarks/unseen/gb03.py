"""Advantage actor-critic on a small numpy pendulum-cart, policies in plain JAX pytrees."""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax


@dataclass
class Config:
    hidden: int = 64
    gamma: float = 0.98
    lam: float = 0.95
    lr: float = 2.5e-3
    rollout: int = 100
    iterations: int = 36
    inner: int = 6
    entropy: float = 0.005


class CartPole:
    def __init__(self, n, seed):
        self.rng, self.n = np.random.default_rng(seed), n
        self.state = self.rng.uniform(-0.05, 0.05, (n, 4))
        self.age = np.zeros(n, int)
        self.finished = []

    def step(self, action):
        x, v, th, w = self.state.T
        force = np.where(action == 1, 10.0, -10.0)
        tmp = (force + 0.05 * w ** 2 * np.sin(th)) / 1.1
        acc = (9.8 * np.sin(th) - np.cos(th) * tmp) / (0.5 * (4 / 3 - 0.1 * np.cos(th) ** 2 / 1.1))
        vacc = tmp - 0.05 * acc * np.cos(th) / 1.1
        self.state = np.stack([x + 0.02 * v, v + 0.02 * vacc, th + 0.02 * w, w + 0.02 * acc], 1)
        self.age += 1
        done = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.21) | (self.age >= 400)
        for i in np.flatnonzero(done):
            self.finished.append(self.age[i])
            self.state[i] = self.rng.uniform(-0.05, 0.05, 4)
            self.age[i] = 0
        return self.state.astype(np.float32), np.ones(self.n, np.float32), done


def dense(key, n_in, n_out, scale=1.0):
    return {"w": scale * jax.random.normal(key, (n_in, n_out)) / np.sqrt(n_in), "b": jnp.zeros(n_out)}


def init_params(key, cfg):
    k = jax.random.split(key, 6)
    return {"pi": [dense(k[0], 4, cfg.hidden), dense(k[1], cfg.hidden, cfg.hidden), dense(k[2], cfg.hidden, 2, 0.01)],
            "v": [dense(k[3], 4, cfg.hidden), dense(k[4], cfg.hidden, cfg.hidden), dense(k[5], cfg.hidden, 1)]}


def mlp(layers, x):
    for layer in layers[:-1]:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return x @ layers[-1]["w"] + layers[-1]["b"]


def act(params, obs, key):
    logits = mlp(params["pi"], obs)
    action = jax.random.categorical(key, logits)
    logp = jax.nn.log_softmax(logits)[jnp.arange(len(obs)), action]
    return action, logp, mlp(params["v"], obs)[:, 0]


def loss_fn(params, batch, entropy):
    logits = jax.nn.log_softmax(mlp(params["pi"], batch["obs"]))
    logp = jnp.take_along_axis(logits, batch["act"][:, None], 1)[:, 0]
    ratio = jnp.exp(logp - batch["logp"])
    gain = jnp.minimum(ratio * batch["adv"], jnp.clip(ratio, 0.8, 1.2) * batch["adv"]).mean()
    bonus = -(jnp.exp(logits) * logits).sum(-1).mean()
    value = jnp.square(mlp(params["v"], batch["obs"])[:, 0] - batch["ret"]).mean()
    return -gain - entropy * bonus + 0.002 * value


grad_fn = jax.jit(jax.value_and_grad(loss_fn))


def collect(env, params, obs, key, cfg):
    log = {k: [] for k in ("obs", "act", "logp", "val", "rew", "done")}
    for k in jax.random.split(key, cfg.rollout):
        action, logp, value = act(params, obs, k)
        nxt, rew, done = env.step(np.asarray(action))
        for name, item in zip(log, (obs, action, logp, value, rew, done)):
            log[name].append(np.asarray(item))
        obs = nxt
    last = np.asarray(act(params, obs, key)[2])
    roll = {k: np.stack(v) for k, v in log.items()}
    adv, run = np.zeros_like(roll["rew"]), np.zeros(env.n, np.float32)
    for t in reversed(range(cfg.rollout)):
        alive = 1.0 - roll["done"][t]
        run = roll["rew"][t] + cfg.gamma * alive * last - roll["val"][t] + cfg.gamma * cfg.lam * alive * run
        adv[t], last = run, roll["val"][t]
    batch = {"obs": roll["obs"], "act": roll["act"], "logp": roll["logp"], "ret": adv + roll["val"],
             "adv": (adv - adv.mean()) / (adv.std() + 1e-6)}
    return obs, {k: v.reshape(-1, *v.shape[2:]) for k, v in batch.items()}


def main(cfg=Config()):
    key = jax.random.key(7)
    key, sub = jax.random.split(key)
    params = init_params(sub, cfg)
    opt = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(cfg.lr))
    opt_state = opt.init(params)
    env = CartPole(16, seed=0)
    obs = env.state.astype(np.float32)
    for it in range(cfg.iterations):
        key, sub = jax.random.split(key)
        obs, batch = collect(env, params, obs, sub, cfg)
        batch = jax.device_put(batch)
        for _ in range(cfg.inner):
            loss, grads = grad_fn(params, batch, cfg.entropy)
            updates, opt_state = opt.update(grads, opt_state, params)
            params = optax.apply_updates(params, updates)
        if (it + 1) % 6 == 0:
            print(f"iteration {it + 1:3d}  loss {float(loss):+.3f}  mean episode {np.mean(env.finished[-40:]):.1f}")


if __name__ == "__main__":
    main()
