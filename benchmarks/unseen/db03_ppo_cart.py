"""Advantage actor-critic on a vectorised cart-pole written in JAX (equinox)."""
import collections
import time
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

N_ENVS, HORIZON, UPDATES = 64, 64, 24
GAMMA, LAMBDA = 0.99, 0.95


class Transition(NamedTuple):
    obs: jax.Array
    action: jax.Array
    logp: jax.Array
    value: jax.Array
    reward: jax.Array
    done: jax.Array


class ActorCritic(eqx.Module):
    trunk: eqx.nn.MLP
    policy: eqx.nn.Linear
    critic: eqx.nn.Linear

    def __init__(self, key):
        k1, k2, k3 = jax.random.split(key, 3)
        self.trunk = eqx.nn.MLP(4, 64, 64, 2, activation=jnp.tanh, key=k1)
        self.policy = eqx.nn.Linear(64, 2, key=k2)
        self.critic = eqx.nn.Linear(64, 1, key=k3)

    def __call__(self, obs):
        h = jnp.tanh(self.trunk(obs))
        return self.policy(h), self.critic(h)[0]


def env_reset(key):
    return jax.random.uniform(key, (N_ENVS, 4), minval=-0.05, maxval=0.05)


@jax.jit
def env_step(state, action, key):
    x, v, th, om = state.T
    force = jnp.where(action == 1, 10.0, -10.0)
    tmp = (force + 0.05 * om**2 * jnp.sin(th)) / 1.1
    acc_th = (9.8 * jnp.sin(th) - jnp.cos(th) * tmp) / (0.5 * (4 / 3 - 0.1 * jnp.cos(th) ** 2 / 1.1))
    acc = tmp - 0.05 * acc_th * jnp.cos(th) / 1.1
    nxt = jnp.stack([x + 0.02 * v, v + 0.02 * acc, th + 0.02 * om, om + 0.02 * acc_th], axis=1)
    done = (jnp.abs(nxt[:, 0]) > 2.4) | (jnp.abs(nxt[:, 2]) > 0.209)
    return jnp.where(done[:, None], env_reset(key), nxt), done


@eqx.filter_jit
def act(model, obs, key):
    logits, value = jax.vmap(model)(obs)
    action = jax.random.categorical(key, logits)
    logp = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
    return action, logp, value


@jax.jit
def gae(traj, last_value):
    """Generalised advantage estimation over the collected horizon."""

    def back(carry, tr):
        adv, next_value = carry
        alive = 1.0 - tr.done.astype(jnp.float32)
        delta = tr.reward + GAMMA * next_value * alive - tr.value
        adv = delta + GAMMA * LAMBDA * alive * adv
        return (adv, tr.value), adv

    return jax.lax.scan(back, (jnp.zeros(N_ENVS), last_value), traj, reverse=True)[1]


def ppo_loss(model, obs, action, logp_old, adv, ret):
    logits, value = jax.vmap(model)(obs)
    logp_all = jax.nn.log_softmax(logits)
    logp = jnp.take_along_axis(logp_all, action[:, None], 1)[:, 0]
    ratio = jnp.exp(logp - logp_old)
    surrogate = jnp.minimum(ratio * adv, jnp.clip(ratio, 0.8, 1.2) * adv)
    entropy = -jnp.sum(jnp.exp(logp_all) * logp_all, axis=1)
    return -surrogate.mean() + 0.5 * jnp.mean((value - ret) ** 2) - 0.01 * entropy.mean()


def main():
    key = jax.random.key(0)
    key, k = jax.random.split(key)
    model = ActorCritic(k)
    tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3))
    opt = tx.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_jit
    def update(model, opt, *batch):
        loss, grads = eqx.filter_value_and_grad(ppo_loss)(model, *batch)
        upd, opt = tx.update(grads, opt)
        return eqx.apply_updates(model, upd), opt, loss

    state = env_reset(k)
    running = np.zeros(N_ENVS)
    episodes = collections.deque(maxlen=100)
    start = time.perf_counter()
    for it in range(UPDATES):
        rows = []
        for _ in range(HORIZON):
            key, ka, ke = jax.random.split(key, 3)
            action, logp, value = act(model, state, ka)
            nxt, done = env_step(state, action, ke)
            rows.append(Transition(state, action, logp, value, jnp.where(done, 0.0, 1.0), done))
            state = nxt
            running += 1
            for i in range(N_ENVS):
                if done[i]:
                    episodes.append(running[i])
                    running[i] = 0
        traj = jax.tree.map(lambda *x: jnp.stack(x), *rows)
        _, _, last = act(model, state, key)
        adv = gae(traj, last)
        ret = adv + traj.value
        norm = (adv - adv.mean()) / (adv.std() + 1e-8)
        flat = [a.reshape(-1, *a.shape[2:]) for a in (traj.obs, traj.action, traj.logp, norm, ret)]
        for _ in range(4):
            model, opt, loss = update(model, opt, *flat)
        if it % 4 == 3:
            mean = float(np.mean(episodes))
            print(f"update {it + 1:3d}: return {mean:6.1f}  loss {float(loss):.3f}  {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
