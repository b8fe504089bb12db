"""Weather station forecasting with a deep MLP-mixer (flax nnx), rolling validation."""
import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


@dataclasses.dataclass
class Hyper:
    stations: int = 16
    context: int = 24
    horizon: int = 6
    width: int = 32
    depth: int = 10
    batch: int = 48
    epochs: int = 2
    lr: float = 1e-3


def weather(hours, stations, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)[:, None]
    phase = rng.uniform(0, 2 * np.pi, stations)
    base = 8 * np.sin(2 * np.pi * t / 24 + phase) + 4 * np.sin(2 * np.pi * t / 170 + 0.5 * phase)
    front = np.cumsum(rng.normal(0, 0.4, (hours, 1)), 0)
    lag = rng.integers(0, 5, stations)
    front = np.stack([np.roll(front[:, 0], k) for k in lag], 1)
    x = base + front + 0.5 * rng.normal(size=base.shape)
    return ((x - x.mean(0)) / x.std(0)).astype(np.float32)


class Windows:
    def __init__(self, series, hyper, stride=1):
        self.series, self.h = series, hyper
        self.starts = np.arange(0, len(series) - hyper.context - hyper.horizon, stride)

    def __len__(self):
        return -(-len(self.starts) // self.h.batch)

    def __call__(self, rng=None):
        starts = self.starts if rng is None else rng.permutation(self.starts)
        span = np.arange(self.h.context + self.h.horizon)
        for i in range(0, len(starts), self.h.batch):
            block = self.series[starts[i:i + self.h.batch, None] + span]
            yield block[:, :self.h.context], block[:, self.h.context:]


class MixerBlock(nnx.Module):
    def __init__(self, tokens, width, rngs):
        self.norm1 = nnx.LayerNorm(width, rngs=rngs)
        self.norm2 = nnx.LayerNorm(width, rngs=rngs)
        self.token_in = nnx.Linear(tokens, 2 * tokens, rngs=rngs)
        self.token_out = nnx.Linear(2 * tokens, tokens, rngs=rngs)
        self.channel_in = nnx.Linear(width, 2 * width, rngs=rngs)
        self.channel_out = nnx.Linear(2 * width, width, rngs=rngs)

    def __call__(self, x):
        y = self.norm1(x).swapaxes(1, 2)
        x = x + self.token_out(nnx.gelu(self.token_in(y))).swapaxes(1, 2)
        return x + self.channel_out(nnx.gelu(self.channel_in(self.norm2(x))))


class Forecaster(nnx.Module):
    def __init__(self, h, rngs):
        self.h = h
        self.embed = nnx.Linear(h.context, h.width, rngs=rngs)
        self.blocks = nnx.List([MixerBlock(h.stations, h.width, rngs) for _ in range(h.depth)])
        self.norm = nnx.LayerNorm(h.width, rngs=rngs)
        self.head = nnx.Linear(h.width, h.horizon, rngs=rngs)

    def __call__(self, x):
        last = x[:, -1:]
        y = self.embed((x - last).swapaxes(1, 2))
        for block in self.blocks:
            y = block(y)
        return self.head(self.norm(y)).swapaxes(1, 2) + last


def loss_fn(model, x, y):
    return optax.huber_loss(model(x), y).mean()


@nnx.jit
def train_step(model, optimizer, x, y):
    loss, grads = nnx.value_and_grad(loss_fn)(model, x, y)
    optimizer.update(model, grads)
    return loss


@nnx.jit
def errors(model, x, y):
    return jnp.abs(model(x) - y).mean((0, 2)), x.shape[0]


def validate(model, windows, h):
    total, count = np.zeros(h.horizon), 0
    for e, n in jax.device_get([errors(model, x, y) for x, y in windows()]):
        total, count = total + int(n) * e, count + int(n)
    return total / count


def main():
    h = Hyper()
    series = weather(1500, h.stations)
    train, valid = Windows(series[:1200], h), Windows(series[1200:], h, stride=3)
    model = Forecaster(h, nnx.Rngs(0))
    steps = h.epochs * len(train)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(h.lr, steps)))
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    rng = np.random.default_rng(0)
    start = time.perf_counter()
    for epoch in range(h.epochs):
        losses = [train_step(model, optimizer, x, y) for x, y in train(rng)]
        mae = validate(model, valid, h)
        print(f"epoch {epoch} loss {np.mean(jax.device_get(losses)):.4f} mae by hour {mae.round(3)} "
              f"{time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
