"""Probabilistic demand forecasting: a GRU over daily sales of 40 shops predicts next week's mean and spread.

The learning rate halves when the validation loss stops improving.
"""
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

SHOPS, DAYS, HISTORY, HORIZON, BATCH = 40, 600, 42, 7, 64
EPOCHS, STEPS_PER_EPOCH = 8, 60


def synth_sales(seed):
    rng = np.random.default_rng(seed)
    day = np.arange(DAYS)
    level = rng.uniform(20, 60, (SHOPS, 1)) * (1 + 0.0004 * day)
    week = 1 + rng.uniform(0.1, 0.5, (SHOPS, 1)) * np.sin(2 * np.pi * (day / 7 + rng.uniform(size=(SHOPS, 1))))
    year = 1 + 0.2 * np.sin(2 * np.pi * day / 365)
    promo = 1 + 0.4 * (rng.uniform(size=(SHOPS, DAYS)) < 0.05)
    sales = rng.poisson(level * week * year * promo)
    features = np.stack([np.log1p(sales) - 3.5, promo - 1.0, np.tile(np.sin(2 * np.pi * day / 7), (SHOPS, 1)),
                         np.tile(np.cos(2 * np.pi * day / 7), (SHOPS, 1))], -1)
    return features.astype(np.float32)


class Forecaster(nn.Module):
    width: int = 40

    @nn.compact
    def __call__(self, history, known_ahead):
        states = nn.RNN(nn.GRUCell(self.width))(history)
        context = jnp.concatenate([states[:, -1], known_ahead.reshape(len(history), -1)], -1)
        hidden = nn.relu(nn.Dense(64)(context))
        mean, raw = jnp.split(nn.Dense(2 * HORIZON)(hidden), 2, axis=-1)
        return mean + history[:, -HORIZON:, 0], nn.softplus(raw) + 0.02


model = Forecaster()


def nll(params, windows):
    history, ahead = windows[:, :HISTORY], windows[:, HISTORY:]
    mean, spread = model.apply(params, history, ahead[..., 1:])
    return jnp.mean(0.5 * ((ahead[..., 0] - mean) / spread) ** 2 + jnp.log(spread))


@functools.partial(jax.jit, static_argnames="tx")
def train_step(params, opt_state, windows, tx):
    loss, grads = jax.value_and_grad(nll)(params, windows)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


validate = jax.jit(nll)


class WindowSampler:
    """Random windows of one shop's history and the week after it, cut from the array on the device."""

    def __init__(self, table, first, last, seed):
        self.table = jnp.asarray(table)
        self.rng, self.first, self.last = np.random.default_rng(seed), first, last

    def batch(self, size):
        shops = self.rng.integers(0, SHOPS, size)
        starts = self.rng.integers(self.first, self.last - HISTORY - HORIZON, size)
        return jnp.stack([self.table[s, d:d + HISTORY + HORIZON] for s, d in zip(shops, starts)])


class Plateau:
    def __init__(self, lr, patience=1, factor=0.5):
        self.lr, self.patience, self.factor = lr, patience, factor
        self.best, self.bad = np.inf, 0

    def observe(self, value):
        if value < self.best - 0.01:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
            if self.bad > self.patience:
                self.lr, self.bad = self.lr * self.factor, 0


def make_tx(lr):
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(lr, weight_decay=1e-4))


def run():
    table = synth_sales(3)
    train = WindowSampler(table, 0, 500, seed=0)
    held_out = WindowSampler(table, 450, DAYS, seed=1).batch(256)
    params = model.init(jax.random.key(0), held_out[:1, :HISTORY], held_out[:1, HISTORY:, 1:])
    plateau = Plateau(lr=8e-3)
    opt_state = make_tx(plateau.lr).init(params)
    for epoch in range(EPOCHS):
        tx = make_tx(plateau.lr)
        total = jnp.zeros(())
        for _ in range(STEPS_PER_EPOCH):
            params, opt_state, loss = train_step(params, opt_state, train.batch(BATCH), tx)
            total += loss
        score = float(validate(params, held_out))
        plateau.observe(score)
        print(f"epoch {epoch:2d}: train nll {float(total) / STEPS_PER_EPOCH:+.3f}  validation {score:+.3f}  lr {plateau.lr:.4f}")
    mean, spread = model.apply(params, held_out[:, :HISTORY], held_out[:, HISTORY:, 1:])
    inside = jnp.abs(held_out[:, HISTORY:, 0] - mean) < 1.645 * spread
    print(f"90 % interval covers {float(inside.mean()):.3f} of the held-out days")


if __name__ == "__main__":
    run()
