"""A2C on a batch of key-and-door grid rooms, env and agent in JAX (linen + optax)."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

SIZE = 9
N_ENVS = 32
HORIZON = 24
UPDATES = 60
GAMMA = 0.97
MOVES = jnp.array([[0, 1], [1, 0], [0, -1], [-1, 0]])


class Room(NamedTuple):
    agent: jax.Array
    key_at: jax.Array
    door_at: jax.Array
    has_key: jax.Array
    t: jax.Array


def reset(rng):
    a, b, c = jax.random.split(rng, 3)
    place = lambda k: jax.random.randint(k, (2,), 0, SIZE)
    return Room(place(a), place(b), place(c), jnp.array(False), jnp.array(0))


def step_env(room, action, rng):
    agent = jnp.clip(room.agent + MOVES[action], 0, SIZE - 1)
    got = (agent == room.key_at).all() & ~room.has_key
    has_key = room.has_key | got
    opened = (agent == room.door_at).all() & has_key
    t = room.t + 1
    done = opened | (t >= 60)
    reward = 0.3 * got + 1.0 * opened - 0.01
    fresh = reset(rng)
    moved = Room(agent, room.key_at, room.door_at, has_key, t)
    return jax.tree.map(lambda f, m: jnp.where(done, f, m), fresh, moved), reward, done


def observe(room):
    planes = jnp.zeros((3, SIZE, SIZE))
    planes = planes.at[0, room.agent[0], room.agent[1]].set(1.0)
    planes = planes.at[1, room.key_at[0], room.key_at[1]].set(1.0 - room.has_key)
    planes = planes.at[2, room.door_at[0], room.door_at[1]].set(1.0)
    return jnp.concatenate([planes.ravel(), room.has_key[None].astype(jnp.float32)])


class VecRooms:
    def __init__(self, n, seed):
        self.rng = jax.random.key(seed)
        self.n = n
        self.rooms = jax.vmap(reset)(jax.random.split(self.rng, n))
        self._step = jax.vmap(step_env)
        self._observe = jax.vmap(observe)

    def observation(self):
        return self._observe(self.rooms)

    def step(self, actions):
        self.rng, sub = jax.random.split(self.rng)
        self.rooms, reward, done = self._step(self.rooms, actions, jax.random.split(sub, self.n))
        return self.observation(), reward, done


class ActorCritic(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.tanh(nn.Dense(128)(x))
        x = nn.tanh(nn.Dense(128)(x))
        return nn.Dense(4)(x), nn.Dense(1)(x)[..., 0]


net = ActorCritic()
tx = optax.chain(optax.clip_by_global_norm(0.5), optax.rmsprop(1e-3, decay=0.99))


@jax.jit
def act(params, obs, rng):
    logits, _ = net.apply(params, obs)
    return jax.random.categorical(rng, logits)


@jax.jit
def update(params, opt_state, obs, actions, rewards, dones, last_obs):
    _, last_value = net.apply(params, last_obs)

    def discount(ret, rd):
        r, d = rd
        ret = r + GAMMA * ret * (1 - d)
        return ret, ret

    _, returns = jax.lax.scan(discount, last_value, (rewards, dones.astype(jnp.float32)), reverse=True)

    def loss_fn(p):
        logits, value = net.apply(p, obs)
        logp = jax.nn.log_softmax(logits)
        taken = jnp.take_along_axis(logp, actions[..., None], -1)[..., 0]
        adv = returns - value
        entropy = -(jnp.exp(logp) * logp).sum(-1).mean()
        return -(taken * jax.lax.stop_gradient(adv)).mean() + 0.5 * (adv ** 2).mean() - 0.01 * entropy

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def main():
    envs = VecRooms(N_ENVS, 0)
    obs = envs.observation()
    rng = jax.random.key(1)
    params = net.init(rng, obs)
    opt_state = tx.init(params)
    solved = []
    for it in range(UPDATES):
        traj = []
        for _ in range(HORIZON):
            rng, sub = jax.random.split(rng)
            actions = act(params, obs, sub)
            nxt, reward, done = envs.step(actions)
            traj.append((obs, actions, reward, done))
            obs = nxt
        batch = [jnp.stack(x) for x in zip(*traj)]
        params, opt_state, loss = update(params, opt_state, *batch, obs)
        solved.append((batch[2] > 0.5).sum())
        if it % 20 == 19:
            print(f"update {it + 1}: loss {float(loss):.3f} doors opened {int(sum(solved[-20:]))}")
    print("total opened", int(np.sum(solved)))


if __name__ == "__main__":
    main()
