"""Predict the yield of apple blocks from weather sequences and block attributes (Flax linen)."""
import argparse
import logging
from typing import Iterator, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state

jax.config.update("jax_debug_nans", True)
log = logging.getLogger("orchard")


class Batch(NamedTuple):
    weather: np.ndarray    # (B, 26 weeks, 4 variables)
    block: np.ndarray      # (B, 10)
    yield_t: np.ndarray    # (B,)


def simulate_blocks(n: int, seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    weeks = np.linspace(0, np.pi, 26)
    temp = 12 + 9 * np.sin(weeks)[None] + rng.normal(0, 2, (n, 26))
    rain = rng.gamma(2.0, 8.0, (n, 26))
    sun = 5 + 4 * np.sin(weeks)[None] + rng.normal(0, 1, (n, 26))
    frost = (temp < 3).astype(float)
    weather = np.stack([temp / 10, rain / 20, sun / 5, frost], -1)
    block = rng.normal(size=(n, 10))
    bloom = temp[:, 4:9].mean(1)
    y = 30 + 1.5 * (bloom - 17) - 0.02 * (rain.sum(1) - 416) ** 2 / 100 + 3 * np.tanh(block[:, 0]) \
        + 2 * block[:, 1] * (block[:, 2] > 0) - 4 * frost[:, 3:8].sum(1) + rng.normal(0, 1, n)
    y = (y - y.mean()) / y.std()
    return Batch(weather.astype(np.float32), block.astype(np.float32), y.astype(np.float32))


def iterate(data: Batch, batch_size: int, rng: np.random.Generator) -> Iterator[Batch]:
    order = rng.permutation(len(data.yield_t))
    for s in range(0, len(order) - batch_size + 1, batch_size):
        idx = order[s:s + batch_size]
        yield Batch(*(a[idx] for a in data))


class WeatherTower(nn.Module):
    width: int = 24

    @nn.compact
    def __call__(self, w):
        for k in (5, 3):
            w = nn.Conv(self.width, (k,), padding="SAME")(w)
            w = nn.LayerNorm()(w)
            w = nn.silu(w)
        return jnp.concatenate([w.mean(1), w.max(1)], -1)


class YieldNet(nn.Module):
    @nn.compact
    def __call__(self, weather, block):
        h = jnp.concatenate([WeatherTower()(weather), nn.Dense(16)(block)], -1)
        for width in (48, 24):
            h = nn.silu(nn.Dense(width)(h))
        return nn.Dense(1)(h)[:, 0]


def build_optimizer(lr: float) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(lr, weight_decay=1e-3))


@jax.jit
def train_step(state, batch: Batch):
    def loss_fn(params):
        pred = state.apply_fn({"params": params}, batch.weather, batch.block)
        return optax.huber_loss(pred, batch.yield_t).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


@jax.jit
def squared_error(params, batch: Batch):
    pred = YieldNet().apply({"params": params}, batch.weather, batch.block)
    return jnp.sum((pred - batch.yield_t) ** 2)


def validate(params, data: Batch, chunk: int = 200) -> float:
    total = []
    for s in range(0, len(data.yield_t), chunk):
        total.append(squared_error(params, Batch(*(a[s:s + chunk] for a in data))))
    return float(sum(total)) / len(data.yield_t)


class Plateau:
    """Shrinks the learning rate when the validation error has not got clearly better."""

    def __init__(self, lr: float, factor: float = 0.7, threshold: float = 0.2):
        self.lr, self.factor, self.threshold = lr, factor, threshold
        self.best = float("inf")

    def update(self, value: float) -> bool:
        if value < self.best * (1 - self.threshold):
            self.best = value
            return False
        self.best = min(self.best, value)
        self.lr *= self.factor
        return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("jax").setLevel(logging.WARNING)

    train, val = simulate_blocks(3840, 0), simulate_blocks(400, 1)
    net = YieldNet()
    params = net.init(jax.random.key(0), train.weather[:2], train.block[:2])["params"]
    plateau = Plateau(args.lr)
    state = train_state.TrainState.create(apply_fn=net.apply, params=params, tx=build_optimizer(plateau.lr))
    rng = np.random.default_rng(7)

    for epoch in range(args.epochs):
        losses = []
        for batch in iterate(train, args.batch_size, rng):
            state, loss = train_step(state, batch)
            losses.append(loss)
        mse = validate(state.params, val)
        log.info("epoch %2d  train %.4f  val mse %.4f  lr %.2e", epoch, np.mean(jax.device_get(losses)), mse, plateau.lr)
        if plateau.update(mse):
            state = state.replace(tx=build_optimizer(plateau.lr))


if __name__ == "__main__":
    main()
