"""Double DQN on a vectorised catch-the-ball grid (equinox). Frames are kept in a replay buffer on the device."""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

GRID, ENVS, CAPACITY, BATCH = 12, 16, 24_000, 64
GAMMA, TARGET_EVERY, STEPS = 0.97, 100, 900


# ---------------------------------------------------------------- environment
def reset(key, n):
    k1, k2, k3 = jax.random.split(key, 3)
    ball = jnp.stack([jnp.zeros(n, jnp.int32), jax.random.randint(k1, (n,), 0, GRID)], 1)
    return ball, jax.random.randint(k2, (n,), 0, GRID), jax.random.randint(k3, (n,), -1, 2)


def render(env):
    ball, paddle, _ = env
    rows = jnp.arange(ball.shape[0])
    frame = jnp.zeros((ball.shape[0], GRID, GRID), jnp.float32)
    return frame.at[rows, ball[:, 0], ball[:, 1]].set(1.0).at[rows, GRID - 1, paddle].set(-1.0)


@jax.jit
def env_step(key, env, action):
    ball, paddle, drift = env
    paddle = jnp.clip(paddle + action - 1, 0, GRID - 1)
    ball = jnp.stack([ball[:, 0] + 1, jnp.clip(ball[:, 1] + drift, 0, GRID - 1)], 1)
    done = ball[:, 0] >= GRID - 1
    reward = jnp.where(done, jnp.where(jnp.abs(ball[:, 1] - paddle) <= 1, 1.0, -1.0), 0.0)
    fresh = reset(key, ball.shape[0])
    new = jax.tree.map(lambda f, o: jnp.where(done.reshape((-1,) + (1,) * (o.ndim - 1)), f, o), fresh, (ball, paddle, drift))
    return new, render((ball, paddle, drift)), render(new), reward, done


# ---------------------------------------------------------------- replay
def empty_replay():
    frames = (CAPACITY, GRID, GRID)
    return {
        "obs": jnp.zeros(frames), "next_obs": jnp.zeros(frames),
        "action": jnp.zeros(CAPACITY, jnp.int32), "reward": jnp.zeros(CAPACITY), "done": jnp.zeros(CAPACITY, bool),
    }


@jax.jit
def store(replay, rows, at):
    """Writes ENVS transitions from row `at` on; CAPACITY is a multiple of ENVS."""
    return {k: lax.dynamic_update_slice_in_dim(replay[k], rows[k].astype(replay[k].dtype), at, 0) for k in replay}


@jax.jit
def draw(replay, key, filled):
    idx = jax.random.randint(key, (BATCH,), 0, filled)
    return {k: v[idx] for k, v in replay.items()}


# ---------------------------------------------------------------- agent
class QNet(eqx.Module):
    trunk: eqx.nn.MLP

    def __init__(self, key):
        self.trunk = eqx.nn.MLP(GRID * GRID, 3, 96, 2, key=key)

    def __call__(self, frame):
        return self.trunk(frame.reshape(-1))


optimizer = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(1e-3))


@eqx.filter_jit
def act(net, obs, key, epsilon):
    k1, k2 = jax.random.split(key)
    greedy = jax.vmap(net)(obs).argmax(-1)
    return jnp.where(jax.random.uniform(k1, greedy.shape) < epsilon, jax.random.randint(k2, greedy.shape, 0, 3), greedy)


@eqx.filter_jit
def learn(net, target, opt_state, batch):
    best = jax.vmap(net)(batch["next_obs"]).argmax(-1)
    future = jnp.take_along_axis(jax.vmap(target)(batch["next_obs"]), best[:, None], 1)[:, 0]
    goal = batch["reward"] + GAMMA * jnp.where(batch["done"], 0.0, future)

    @eqx.filter_value_and_grad
    def td_loss(net):
        q = jnp.take_along_axis(jax.vmap(net)(batch["obs"]), batch["action"][:, None], 1)[:, 0]
        return optax.huber_loss(q, goal).mean()

    loss, grads = td_loss(net)
    updates, opt_state = optimizer.update(grads, opt_state)
    return eqx.apply_updates(net, updates), opt_state, loss


def main():
    key, k_net, k_env = jax.random.split(jax.random.key(3), 3)
    net = QNet(k_net)
    target, opt_state = net, optimizer.init(eqx.filter(net, eqx.is_array))
    env = reset(k_env, ENVS)
    obs, replay, window = render(env), empty_replay(), []
    for step in range(STEPS):
        key, k_act, k_step, k_draw = jax.random.split(key, 4)
        epsilon = max(0.05, 1.0 - step / (0.5 * STEPS))
        action = act(net, obs, k_act, np.float32(epsilon))
        env, next_obs, shown, reward, done = env_step(k_step, env, action)
        rows = {"obs": obs, "next_obs": next_obs, "action": action, "reward": reward, "done": done}
        replay = store(replay, rows, (step * ENVS) % CAPACITY)
        obs = shown
        window.append((reward.sum(), done.sum()))
        if step >= 30:
            batch = draw(replay, k_draw, min((step + 1) * ENVS, CAPACITY))
            net, opt_state, loss = learn(net, target, opt_state, batch)
        if step % TARGET_EVERY == TARGET_EVERY - 1:
            target = net
            total, ended = (float(sum(w)) for w in zip(*window))
            print(f"step {step + 1:5d}  mean outcome {total / max(ended, 1):+.2f}  td loss {float(loss):.4f}  epsilon {epsilon:.2f}")
            window = []


if __name__ == "__main__":
    main()
