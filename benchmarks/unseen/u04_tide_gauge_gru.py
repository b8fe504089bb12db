"""Forecast the surge at tide gauges with a GRU over windows of three lengths (flax.linen)."""
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training import train_state

BUCKETS = (24, 48, 96)
BATCH = 32
TOTAL_STEPS = 6000
LOG_EVERY = 50
EVAL_EVERY = 1500
EVAL_SIZE = 200
FEATURES = 4
M2, S2, O1 = 12.42, 12.0, 25.82


class SurgeGRU(nn.Module):
    hidden: int = 16
    dropout: float = 0.1

    @nn.compact
    def __call__(self, windows, train: bool):
        x = nn.Dense(self.hidden)(windows)
        x = nn.RNN(nn.GRUCell(self.hidden))(x)
        last = nn.Dropout(self.dropout, deterministic=not train)(x[:, -1])
        return nn.Dense(1)(last)[:, 0]


class GaugeArchive:
    """Hourly water levels; gaps split the record into stretches of different lengths."""

    def __init__(self, hours, seed):
        rng = np.random.default_rng(seed)
        t = np.arange(hours)
        tide = sum(a * np.cos(2 * np.pi * t / p + rng.uniform(0, 6)) for a, p in ((1.0, M2), (0.4, S2), (0.3, O1)))
        wind = np.zeros(hours)
        noise = rng.normal(0, 0.15, hours)
        for k in range(1, hours):
            wind[k] = 0.97 * wind[k - 1] + noise[k]
        pressure = np.convolve(rng.normal(size=hours), np.ones(24) / 24, mode="same")
        surge = 0.5 * np.roll(wind, 3) - 0.4 * pressure + 0.05 * tide
        self.table = np.stack([tide, wind, pressure, surge], axis=1).astype(np.float32)
        self.rng = rng

    def window_batch(self, length, n, rng=None):
        rng = rng or self.rng
        start = rng.integers(0, len(self.table) - length - 6, size=n)
        idx = start[:, None] + np.arange(length)[None]
        return self.table[idx], self.table[start + length + 5, 3]


def draw_length(rng):
    """Length of an unbroken stretch, padded down to the bucket below it."""
    stretch = rng.integers(24, 160)
    return max(b for b in BUCKETS if b <= stretch)


@partial(jax.jit, static_argnames="train")
def run_model(state, windows, target, rng, train):
    def loss_fn(params):
        pred = state.apply_fn({"params": params}, windows, train=train, rngs={"dropout": rng})
        return jnp.mean((pred - target) ** 2)

    if not train:
        return state, loss_fn(state.params)
    rng = jax.random.fold_in(rng, state.step)
    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def create_state(rng):
    model = SurgeGRU()
    init = jax.jit(partial(model.init, train=False))
    params = init(rng, jnp.zeros((1, BUCKETS[0], FEATURES)))["params"]
    schedule = optax.warmup_cosine_decay_schedule(0.0, 5e-3, 200, TOTAL_STEPS)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-4))
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx)
    return state.replace(step=jnp.zeros((), jnp.int32))


def warm_up(state, archive, rng):
    """Compile every bucket before the clock starts, so that the log's rates are comparable."""
    for length in BUCKETS:
        windows, target = archive.window_batch(length, BATCH)
        jax.block_until_ready(run_model(state, windows, target, rng, train=True))


def main():
    archive, held_out = GaugeArchive(40_000, seed=1), GaugeArchive(8_000, seed=2)
    rng = jax.random.key(0)
    init_rng, step_rng = jax.random.split(rng)
    state = create_state(init_rng)
    lengths = np.random.default_rng(9)
    eval_batch = jax.device_put(held_out.window_batch(BUCKETS[1], EVAL_SIZE))
    warm_up(state, archive, step_rng)

    t0 = time.perf_counter()
    running = []
    for step in range(1, TOTAL_STEPS + 1):
        windows, target = archive.window_batch(draw_length(lengths), BATCH)
        state, loss = run_model(state, windows, target, step_rng, train=True)
        running.append(loss)
        if step % LOG_EVERY == 0:
            mean = np.mean(jax.device_get(running))
            running.clear()
            if step % 500 == 0:
                print(f"step {step:5d} loss {mean:.4f} {step / (time.perf_counter() - t0):.0f} steps/s")
        if step % EVAL_EVERY == 0:
            _, val = run_model(state, *eval_batch, step_rng, train=False)
            print(f"step {step:5d} held-out rmse {float(val) ** 0.5:.4f}")


if __name__ == "__main__":
    main()
