"""Probabilistic load forecasting: GRU encoder/decoder with scheduled sampling (equinox).

Synthetic hourly electricity demand for several substations; forecasts of the next day
are rolled out from a window of past hours and scored by CRPS and coverage.
"""
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax


@dataclasses.dataclass
class Config:
    substations: int = 24
    hours: int = 24 * 120
    window: int = 48
    horizon: int = 24
    hidden: int = 24
    batch: int = 64
    epochs: int = 6
    batches_per_epoch: int = 25
    lr: float = 4e-3
    seed: int = 5


def synthetic_load(cfg):
    rng = np.random.default_rng(cfg.seed)
    t = np.arange(cfg.hours)
    temp = 8 * np.sin(2 * np.pi * t / (24 * 90)) + np.cumsum(rng.normal(0, 0.1, cfg.hours))
    base = rng.uniform(0.7, 1.3, (cfg.substations, 1))
    phase = rng.normal(0, 1.5, (cfg.substations, 1))
    daily = 0.5 * np.sin(2 * np.pi * (t - 8 + phase) / 24) + 0.2 * np.sin(4 * np.pi * (t + phase) / 24)
    weekly = -0.3 * ((t // 24) % 7 >= 5)
    load = base * (1 + daily + weekly - 0.01 * temp) + rng.normal(0, 0.07, (cfg.substations, cfg.hours))
    load = (load - load.mean(1, keepdims=True)) / load.std(1, keepdims=True)
    calendar = np.stack([np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 24), (t // 24) % 7 >= 5], 1)
    return load.astype(np.float32), calendar.astype(np.float32)


class Forecaster(eqx.Module):
    encoder: eqx.nn.GRUCell
    decoder: eqx.nn.GRUCell
    head: eqx.nn.MLP

    def __init__(self, hidden, key):
        k1, k2, k3 = jax.random.split(key, 3)
        self.encoder = eqx.nn.GRUCell(4, hidden, key=k1)
        self.decoder = eqx.nn.GRUCell(4, hidden, key=k2)
        self.head = eqx.nn.MLP(hidden, 2, 32, 1, key=k3)

    def __call__(self, past, past_cal, future_cal, future, forced):
        """past (window,), future (horizon,), forced (horizon,) booleans; returns mean and log std."""
        def encode(h, inp):
            return self.encoder(inp, h), None

        def decode(carry, inp):
            h, prev = carry
            cal, truth, use_truth = inp
            h = self.decoder(jnp.append(cal, prev), h)
            mean, log_std = self.head(h)
            return (h, jnp.where(use_truth, truth, mean)), (mean, jnp.clip(log_std, -4, 1))

        h, _ = jax.lax.scan(encode, jnp.zeros(self.encoder.hidden_size), jnp.column_stack([past_cal, past]))
        _, out = jax.lax.scan(decode, (h, past[-1]), (future_cal, future, forced))
        return out


def batch_loss(model, batch, key, teacher_ratio):
    past, past_cal, future_cal, future = batch
    forced = jax.random.bernoulli(key, teacher_ratio, future.shape)
    mean, log_std = jax.vmap(model)(past, past_cal, future_cal, future, forced)
    return jnp.mean(log_std + 0.5 * ((future - mean) / jnp.exp(log_std)) ** 2)


def make_train_step(optimizer):
    @eqx.filter_jit
    def step(model, opt_state, batch, key, teacher_ratio):
        loss, grads = eqx.filter_value_and_grad(batch_loss)(model, batch, key, teacher_ratio)
        updates, opt_state = optimizer.update(grads, opt_state)
        return eqx.apply_updates(model, updates), opt_state, loss
    return step


@eqx.filter_jit
def forecast(model, batch):
    past, past_cal, future_cal, future = batch
    return jax.vmap(model)(past, past_cal, future_cal, future, jnp.zeros(future.shape, bool))


def draw_batch(load, calendar, cfg, rng, first, last):
    sub = rng.integers(0, cfg.substations, cfg.batch)
    start = rng.integers(first, last - cfg.window - cfg.horizon, cfg.batch)
    past = start[:, None] + np.arange(cfg.window)
    future = start[:, None] + cfg.window + np.arange(cfg.horizon)
    return load[sub[:, None], past], calendar[past], calendar[future], load[sub[:, None], future]


def main(cfg=Config()):
    load, calendar = synthetic_load(cfg)
    rng = np.random.default_rng(cfg.seed)
    split = cfg.hours * 3 // 4
    key = jax.random.key(cfg.seed)
    key, sub = jax.random.split(key)
    model = Forecaster(cfg.hidden, sub)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(cfg.lr))
    opt_state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    train_step = make_train_step(optimizer)
    for epoch in range(cfg.epochs):
        teacher_ratio = max(0.0, 1.0 - epoch / (cfg.epochs - 2))
        total = 0.0
        for _ in range(cfg.batches_per_epoch):
            key, sub = jax.random.split(key)
            batch = draw_batch(load, calendar, cfg, rng, 0, split)
            model, opt_state, loss = train_step(model, opt_state, batch, sub, teacher_ratio)
            total = total + loss
        val = draw_batch(load, calendar, cfg, rng, split, cfg.hours)
        mean, log_std = map(np.asarray, forecast(model, val))
        rmse = np.sqrt(np.mean((mean - val[3]) ** 2))
        inside = np.mean(np.abs(mean - val[3]) < 1.645 * np.exp(log_std))
        print(f"epoch {epoch:2d} ratio {teacher_ratio:.2f} nll {float(total) / cfg.batches_per_epoch:+.3f} "
              f"val rmse {rmse:.3f} coverage90 {inside:.2f}")


if __name__ == "__main__":
    main()
