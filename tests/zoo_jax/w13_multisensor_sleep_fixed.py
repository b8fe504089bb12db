"""Sleep staging from whichever wearable sensors a night offers (flax.linen)."""
import argparse
import logging
import time
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

LOG = logging.getLogger("sleep")

STAGES = 5
SENSORS = {"heart": 30, "motion": 45, "breath": 24, "temp": 6}


def night(rng, n_epochs=48):
    stage = np.zeros(n_epochs, np.int32)
    for i in range(1, n_epochs):
        stage[i] = stage[i - 1] if rng.random() < 0.75 else rng.integers(STAGES)
    signals = {}
    for k, (name, length) in enumerate(SENSORS.items()):
        t = np.arange(length)
        freq = 0.1 + 0.06 * k + 0.05 * stage[:, None]
        wave = np.sin(2 * np.pi * freq * t + rng.uniform(0, 6.28, (n_epochs, 1)))
        signals[name] = (wave * (1 + 0.2 * stage[:, None]) + rng.normal(0, 0.8, wave.shape)).astype(np.float32)
    return signals, stage


class NightLoader:
    """Batches of nights of one recording site; each site has its own equipment."""

    SITES = [
        ("heart", "motion", "breath", "temp"),
        ("heart", "motion"),
        ("motion", "breath"),
        ("heart", "breath", "temp"),
        ("motion",),
        ("heart", "motion", "temp"),
    ]

    def __init__(self, nights_per_site, batch, seed):
        self.rng = np.random.default_rng(seed)
        self.batch = batch
        self.sites = []
        for sensors in self.SITES:
            nights = [night(self.rng) for _ in range(nights_per_site)]
            signals = {s: np.stack([n[0][s] for n in nights]) for s in sensors}
            self.sites.append((signals, np.stack([n[1] for n in nights])))

    def __iter__(self):
        plan = []
        for site, (_, stages) in enumerate(self.sites):
            order = self.rng.permutation(len(stages))
            plan += [(site, order[i : i + self.batch]) for i in range(0, len(order), self.batch)]
        self.rng.shuffle(plan)
        for site, pick in plan:
            signals, stages = self.sites[site]
            shape = (len(pick), stages.shape[1])
            batch = {
                name: signals[name][pick] if name in signals else np.zeros(shape + (length,), np.float32)
                for name, length in SENSORS.items()
            }
            present = np.array([name in signals for name in SENSORS], np.float32)
            yield (batch, present), stages[pick]


class SensorEncoder(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(self.width)(x)
        return nn.LayerNorm()(nn.gelu(x))


class Stager(nn.Module):
    width: int = 32

    @nn.compact
    def __call__(self, signals, present):
        parts = []
        for k, name in enumerate(SENSORS):
            encoder = SensorEncoder(self.width, name=f"enc_{name}")
            parts.append(present[k] * encoder(signals[name]))
        h = sum(parts) / present.sum()
        for i in range(2):
            y = nn.Conv(self.width, (5,), name=f"context_{i}")(h)
            h = nn.LayerNorm(name=f"norm_{i}")(h + nn.gelu(y))
        return nn.Dense(STAGES, name="stage")(h)


@struct.dataclass
class State:
    params: Any
    opt_state: Any
    key: jax.Array


class Trainer:
    def __init__(self, lr, total):
        self.model = Stager()
        self.tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(lr, total)))
        self.step = jax.jit(self._step)
        self.confusion = jax.jit(self._confusion)

    def init(self, seed):
        key, sub = jax.random.split(jax.random.key(seed))
        dummy = {name: jnp.zeros((1, 4, length)) for name, length in SENSORS.items()}
        params = jax.jit(self.model.init)(sub, dummy, jnp.ones(len(SENSORS)))["params"]
        return State(params, jax.jit(self.tx.init)(params), key)

    def _step(self, state, batch, stages):
        signals, present = batch
        key, sub = jax.random.split(state.key)

        def loss_fn(params):
            jitter = {n: x * (1 + 0.05 * jax.random.normal(sub, x.shape[:1] + (1, 1))) for n, x in signals.items()}
            logits = self.model.apply({"params": params}, jitter, present)
            return optax.softmax_cross_entropy_with_integer_labels(logits, stages).mean()

        loss, grads = jax.value_and_grad(loss_fn)(state.params)
        updates, opt_state = self.tx.update(grads, state.opt_state, state.params)
        return State(optax.apply_updates(state.params, updates), opt_state, key), loss

    def _confusion(self, params, signals, stages):
        guess = self.model.apply({"params": params}, *signals).argmax(-1)
        return jnp.zeros((STAGES, STAGES), jnp.int32).at[stages.ravel(), guess.ravel()].add(1)


def kappa(table):
    table = table / table.sum()
    agree = np.trace(table)
    chance = table.sum(0) @ table.sum(1)
    return (agree - chance) / (1 - chance)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--lr", type=float, default=3e-3)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")

    loader = NightLoader(nights_per_site=64, batch=16, seed=0)
    trainer = Trainer(args.lr, args.epochs * 24)
    state = trainer.init(1)
    for epoch in range(args.epochs):
        began, losses, flops = time.perf_counter(), [], 0.0
        for signals, stages in loader:
            state, loss = trainer.step(state, signals, stages)
            losses.append(loss)
        mean_loss = float(jnp.stack(losses).mean())
        seconds = time.perf_counter() - began
        cost = trainer.step.lower(state, signals, stages).compile().cost_analysis()
        flops = cost.get("flops", 0.0) * len(losses) / seconds
        tables = [trainer.confusion(state.params, s, y) for s, y in loader]
        total = np.sum(jax.device_get(tables), axis=0)
        LOG.info(
            "epoch %d loss %.4f kappa %.3f  %.1f nights/s  %.2f GFLOP/s",
            epoch, mean_loss, kappa(total), 16 * len(losses) / seconds, flops / 1e9,
        )


if __name__ == "__main__":
    main()
