"""Echo state networks for a forced Lorenz-96 series: search over reservoir settings."""
from __future__ import annotations

import itertools
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

DIM = 8
WASHOUT = 200


class Setting(NamedTuple):
    radius: float
    leak: float
    ridge: float
    input_scale: float


class Reservoir(NamedTuple):
    w: jax.Array
    w_in: jax.Array
    bias: jax.Array


def lorenz96(n, forcing=8.0, dt=0.02, seed=0):
    def rhs(x, t):
        return (jnp.roll(x, -1) - jnp.roll(x, 2)) * jnp.roll(x, 1) - x + forcing + jnp.sin(0.3 * t)

    def rk4(carry, _):
        x, t = carry
        k1 = rhs(x, t)
        k2 = rhs(x + 0.5 * dt * k1, t + 0.5 * dt)
        k3 = rhs(x + 0.5 * dt * k2, t + 0.5 * dt)
        k4 = rhs(x + dt * k3, t + dt)
        x = x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return (x, t + dt), x

    x0 = forcing + jax.random.normal(jax.random.key(seed), (DIM,))
    _, xs = jax.jit(lambda x: jax.lax.scan(rk4, (x, 0.0), None, length=n))(x0)
    xs = xs[500:]
    return (xs - xs.mean(0)) / xs.std(0)


class EchoStateNetwork:
    def __init__(self, size, density, seed):
        rng = np.random.default_rng(seed)
        self.size = size
        mask = rng.random((size, size)) < density
        self.raw = rng.normal(size=(size, size)) * mask
        self.raw_in = rng.uniform(-1, 1, size=(size, DIM))
        self.rho = np.max(np.abs(np.linalg.eigvals(self.raw)))
        self.bias = rng.uniform(-0.2, 0.2, size=size)

    def build(self, setting: Setting) -> Reservoir:
        return Reservoir(
            w=jnp.asarray(self.raw * (setting.radius / self.rho), jnp.float32),
            w_in=jnp.asarray(self.raw_in * setting.input_scale, jnp.float32),
            bias=jnp.asarray(self.bias, jnp.float32),
        )


@jax.jit
def drive(res: Reservoir, leak, inputs):
    """States of the reservoir while it hears the inputs."""

    def tick(h, u):
        pre = res.w @ h + res.w_in @ u + res.bias
        h = (1.0 - leak) * h + leak * jnp.tanh(pre)
        return h, h

    h0 = jnp.zeros((res.w.shape[0],), jnp.float32)
    return jax.lax.scan(tick, h0, inputs)


@jax.jit
def fit_readout(states, targets, ridge):
    s = states[WASHOUT:]
    y = targets[WASHOUT:]
    s = jnp.concatenate([s, jnp.ones((s.shape[0], 1))], axis=1)
    gram = s.T @ s + ridge * jnp.eye(s.shape[1])
    return jax.scipy.linalg.solve(gram, s.T @ y, assume_a="pos")


@jax.jit
def readout(states, w_out):
    return states @ w_out[:-1] + w_out[-1]


@jax.jit
def free_run(res, leak, w_out, h, u, truth):
    """Feed predictions back; how long until the error passes 0.4?"""

    def tick(carry, target):
        h, u = carry
        h = (1.0 - leak) * h + leak * jnp.tanh(res.w @ h + res.w_in @ u + res.bias)
        u = h @ w_out[:-1] + w_out[-1]
        return (h, u), jnp.sqrt(jnp.mean((u - target) ** 2))

    _, err = jax.lax.scan(tick, (h, u), truth)
    bad = err > 0.4
    return jnp.where(bad.any(), jnp.argmax(bad), err.shape[0]), err[:25].mean()


def evaluate(net: EchoStateNetwork, setting: Setting, train, valid):
    res = net.build(setting)
    leak = jnp.float32(setting.leak)
    last, states = drive(res, leak, train[:-1])
    w_out = fit_readout(states, train[1:], jnp.float32(setting.ridge))
    one_step = jnp.sqrt(jnp.mean((readout(states[WASHOUT:], w_out) - train[1 + WASHOUT :]) ** 2))
    _, val_states = drive(res, leak, valid[:-1])
    val_rmse = jnp.sqrt(jnp.mean((readout(val_states[WASHOUT:], w_out) - valid[1 + WASHOUT :]) ** 2))
    horizon, early = free_run(res, leak, w_out, val_states[499], valid[500], valid[501:801])
    return {
        "train_rmse": one_step,
        "val_rmse": val_rmse,
        "horizon": horizon,
        "early": early,
    }


def main():
    series = lorenz96(6500)
    train, valid = series[:3000], series[4000:5200]
    net = EchoStateNetwork(size=340, density=0.06, seed=3)
    grid = [
        Setting(*values)
        for values in itertools.product((0.3, 0.6, 0.9, 1.1), (0.5, 1.0), (1e-3, 1e-2), (0.1,))
    ]
    print(f"{len(grid)} settings, {train.shape[0]} steps of training data")
    board = []
    start = time.perf_counter()
    for number, setting in enumerate(grid):
        scores = jax.device_get(evaluate(net, setting, train, valid))
        board.append((float(scores["val_rmse"]), int(scores["horizon"]), setting))
        if number % 4 == 0:
            print(
                f"[{number:3d}] radius {setting.radius} leak {setting.leak} "
                f"val {scores['val_rmse']:.4f} horizon {scores['horizon']} "
                f"({time.perf_counter() - start:.1f}s)"
            )
    board.sort(key=lambda row: row[0])
    for rmse, horizon, setting in board[:5]:
        print(f"rmse {rmse:.4f}  horizon {horizon:4d}  {setting}")


if __name__ == "__main__":
    main()
