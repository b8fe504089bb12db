"""Learn the vector field of a damped, driven pendulum from noisy trajectories (neural ODE, Equinox).

The roll-out horizon grows once, from short pieces to long ones; both horizons are known in advance.
"""
import logging
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

logger = logging.getLogger("pendulum")
DT = 0.1
STAGES = ((8, 300), (24, 300))              # (horizon, number of updates)
BATCH, LOG_EVERY = 64, 50


def true_field(t, s):
    angle, speed = s[..., 0], s[..., 1]
    return np.stack([speed, -np.sin(angle) - 0.15 * speed + 0.3 * np.cos(0.7 * t)], -1)


def record_trajectories(n, length, rng):
    s = np.stack([rng.uniform(-2.5, 2.5, n), rng.uniform(-1, 1, n)], -1)
    out, fine = [s], 5
    for k in range(length - 1):
        for j in range(fine):
            t, h = (k + j / fine) * DT, DT / fine
            a = true_field(t, s)
            b = true_field(t + h, s + h * a)
            s = s + h * (a + b) / 2
        out.append(s)
    traj = np.stack(out, 1)
    return (traj + rng.normal(0, 0.01, traj.shape)).astype(np.float32)


class Field(eqx.Module):
    net: eqx.nn.MLP
    log_scale: jax.Array

    def __init__(self, key):
        self.net = eqx.nn.MLP(5, 2, 32, 2, activation=jnp.tanh, key=key)
        self.log_scale = jnp.zeros(2)

    def __call__(self, t, s):
        x = jnp.stack([jnp.sin(s[0]), jnp.cos(s[0]), s[1], jnp.sin(0.7 * t), jnp.cos(0.7 * t)])
        return self.net(x) * jnp.exp(self.log_scale)


def rollout(field, s0, t0, horizon):
    def rk4(carry, _):
        t, s = carry
        k1 = field(t, s)
        k2 = field(t + DT / 2, s + DT / 2 * k1)
        k3 = field(t + DT / 2, s + DT / 2 * k2)
        k4 = field(t + DT, s + DT * k3)
        s = s + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return (t + DT, s), s

    _, path = jax.lax.scan(rk4, (t0, s0), None, length=horizon - 1)
    return jnp.concatenate([s0[None], path])


def path_error(field, pieces, t0):
    horizon = pieces.shape[1]
    pred = jax.vmap(rollout, in_axes=(None, 0, 0, None))(field, pieces[:, 0], t0, horizon)
    return jnp.mean((pred - pieces) ** 2)


def make_update(optim):
    @eqx.filter_jit(donate="all-except-first")
    def update(batch, field, opt_state):
        loss, grads = eqx.filter_value_and_grad(path_error)(field, *batch)
        updates, opt_state = optim.update(grads, opt_state, eqx.filter(field, eqx.is_inexact_array))
        return eqx.apply_updates(field, updates), opt_state, loss

    return update


@eqx.filter_jit
def forecast_error(field, trajectories):
    zeros = jnp.zeros(trajectories.shape[0])
    pred = jax.vmap(rollout, in_axes=(None, 0, 0, None))(field, trajectories[:, 0], zeros, trajectories.shape[1])
    return jnp.sqrt(jnp.mean((pred - trajectories) ** 2, axis=(0, 2)))


class PieceSampler:
    """Random pieces of the recorded trajectories, cut out on the host with one fancy index."""

    def __init__(self, trajectories, rng):
        self.trajectories, self.rng = trajectories, rng

    def draw(self, horizon):
        n, length, _ = self.trajectories.shape
        which = self.rng.integers(n, size=BATCH)
        start = self.rng.integers(length - horizon + 1, size=BATCH)
        pieces = self.trajectories[which[:, None], start[:, None] + np.arange(horizon)]
        return pieces, (start * DT).astype(np.float32)


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    rng = np.random.default_rng(9)
    sampler = PieceSampler(record_trajectories(200, 80, rng), rng)
    held_out = jnp.asarray(record_trajectories(40, 60, rng))

    field = Field(jr.key(0))
    optim = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.exponential_decay(8e-3, 100, 0.7)))
    opt_state = optim.init(eqx.filter(field, eqx.is_inexact_array))
    update = make_update(optim)

    for horizon, n_updates in STAGES:
        begin = time.perf_counter()
        recent = []
        for i in range(1, n_updates + 1):
            field, opt_state, loss = update(sampler.draw(horizon), field, opt_state)
            recent.append(loss)
            if i % LOG_EVERY == 0:
                logger.info("horizon %2d  update %4d  loss %.5f", horizon, i, np.mean(jax.device_get(recent)))
                recent.clear()
        rmse = np.asarray(forecast_error(field, held_out))
        logger.info("horizon %d done in %.1f s; forecast RMSE after 2 s %.3f, after 6 s %.3f",
                    horizon, time.perf_counter() - begin, rmse[20], rmse[-1])


if __name__ == "__main__":
    main()
