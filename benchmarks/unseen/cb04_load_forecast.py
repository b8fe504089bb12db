"""GRU forecaster of electric load, with warm restarts whenever validation stalls."""
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax


class Forecaster(eqx.Module):
    cell: eqx.nn.GRUCell
    mix: eqx.nn.MLP
    head: eqx.nn.Linear
    horizon: int = eqx.field(static=True)

    def __init__(self, n_in, hidden, horizon, key):
        k1, k2, k3 = jax.random.split(key, 3)
        self.cell = eqx.nn.GRUCell(n_in, hidden, key=k1)
        self.mix = eqx.nn.MLP(hidden, hidden, 64, 1, key=k2)
        self.head = eqx.nn.Linear(hidden, horizon, key=k3)
        self.horizon = horizon

    def __call__(self, xs):
        def f(h, x):
            h = self.cell(x, h)
            return h, None

        h, _ = jax.lax.scan(f, jnp.zeros(self.cell.hidden_size), xs)
        return self.head(h + self.mix(h))


class PlateauRestart:
    """Lowers the peak learning rate when the validation error stops falling."""

    def __init__(self, peak, factor=0.7, patience=1):
        self.peak, self.factor, self.patience = peak, factor, patience
        self.best, self.bad = float("inf"), 0

    def update(self, value):
        if value < self.best * 0.98:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        if self.bad >= self.patience:
            self.bad = 0
            self.peak *= self.factor
            return True
        return False


def make_optimizer(peak, cycle):
    sched = optax.cosine_onecycle_schedule(cycle, peak)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(sched, weight_decay=1e-4))


def pinball(pred, y, q=0.6):
    d = y - pred
    return jnp.mean(jnp.maximum(q * d, (q - 1) * d))


@eqx.filter_value_and_grad
def objective(model, x, y):
    return pinball(jax.vmap(model)(x), y)


@eqx.filter_jit(donate="all-except-first")
def train_step(batch, model, opt_state, optim):
    x, y = batch
    loss, grads = objective(model, x, y)
    updates, opt_state = optim.update(grads, opt_state, eqx.filter(model, eqx.is_array))
    return eqx.apply_updates(model, updates), opt_state, loss


@eqx.filter_jit
def validation(model, x, y):
    return pinball(jax.vmap(model)(x), y, 0.5)


def load_series(n, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(n)
    temp = 10 + 8 * np.sin(2 * np.pi * t / (24 * 365)) + 4 * np.sin(2 * np.pi * t / 24)
    load = 1 + 0.3 * np.sin(2 * np.pi * t / 24 - 1) + 0.1 * (t // 24 % 7 < 5) + 0.02 * np.abs(temp - 18)
    load = load + 0.03 * rng.standard_normal(n).cumsum() / np.sqrt(t + 1)
    feats = np.stack([load, temp / 20, np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 24)], 1)
    return feats.astype(np.float32)


def windows(series, idx, length, horizon):
    x = np.stack([series[i : i + length] for i in idx])
    y = np.stack([series[i + length : i + length + horizon, 0] for i in idx])
    return x, y


def main(length=48, horizon=12, rounds=7, steps=30):
    series = load_series(9000)
    rng = np.random.default_rng(1)
    model = eqx.filter_jit(lambda k: Forecaster(4, 32, horizon, k))(jax.random.key(0))
    restart = PlateauRestart(3e-3)
    optim = make_optimizer(restart.peak, steps * 2)
    params = eqx.filter(model, eqx.is_array)
    opt_state = eqx.filter_jit(optim.init)(params)
    val_x, val_y = windows(series, rng.integers(7500, 8900, 128), length, horizon)
    t0, restarts = time.time(), 0
    for r in range(rounds):
        for _ in range(steps):
            batch = windows(series, rng.integers(0, 7400, 16), length, horizon)
            model, opt_state, loss = train_step(batch, model, opt_state, optim)
        v = float(validation(model, val_x, val_y))
        if restart.update(v):
            restarts += 1
            optim = make_optimizer(restart.peak, steps * 2)
            opt_state = jax.tree.map(jnp.zeros_like, opt_state)
        print(f"round {r} loss {float(loss):.4f} val {v:.4f} peak {restart.peak:.1e} {time.time() - t0:.1f}s")
    print("restarts", restarts)


if __name__ == "__main__":
    main()
