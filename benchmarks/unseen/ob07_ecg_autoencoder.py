"""Convolutional VAE for ECG beats (flax linen): anomaly scores from the reconstruction error."""
import argparse
import functools
import queue
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import flax.linen as nn
from flax import struct
from flax.training import train_state

LENGTH = 128


def beats(count, rng, anomalous=False):
    t = np.linspace(-1, 1, LENGTH)[None]
    def bump(center, width, height):
        c = center + 0.03 * rng.normal(size=(count, 1))
        return height * (1 + 0.1 * rng.normal(size=(count, 1))) * np.exp(-((t - c) / width) ** 2)
    x = bump(-0.5, 0.1, 0.25) + bump(-0.05, 0.03, -0.2) + bump(0, 0.03, 1.2) + bump(0.5, 0.15, 0.35)
    if anomalous:
        x = x + bump(0.25, 0.08, 0.6)
    return (x + 0.03 * rng.normal(size=x.shape)).astype(np.float32)[..., None]


def prefetch(iterator, depth=4):
    """Prepares host batches in a thread; `None` ends the stream."""
    q = queue.Queue(depth)

    def work():
        for item in iterator:
            q.put(item)
        q.put(None)

    threading.Thread(target=work, daemon=True).start()
    while (item := q.get()) is not None:
        yield item


def stream(data, batch, epochs, seed):
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = rng.permutation(len(data))
        for i in range(0, len(order) - batch + 1, batch):
            yield data[order[i:i + batch]] * rng.uniform(0.9, 1.1, (batch, 1, 1)).astype(np.float32)


class Encoder(nn.Module):
    latent: int

    @nn.compact
    def __call__(self, x, train):
        for f in (16, 32):
            x = nn.Conv(f, (5,), strides=2)(x)
            x = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.95)(x))
        stats = nn.Dense(2 * self.latent)(x.reshape(x.shape[0], -1))
        return jnp.split(stats, 2, axis=-1)


class Decoder(nn.Module):
    @nn.compact
    def __call__(self, z):
        x = nn.relu(nn.Dense(32 * LENGTH // 4)(z)).reshape(z.shape[0], LENGTH // 4, 32)
        x = nn.relu(nn.ConvTranspose(16, (5,), strides=(2,))(x))
        return nn.ConvTranspose(1, (5,), strides=(2,))(x)


class VAE(nn.Module):
    latent: int = 6

    def setup(self):
        self.encoder, self.decoder = Encoder(self.latent), Decoder()

    def __call__(self, x, train):
        mean, logvar = self.encoder(x, train)
        z = mean
        if train:
            z = mean + jnp.exp(0.5 * logvar) * jax.random.normal(self.make_rng("latent"), mean.shape)
        return self.decoder(z), mean, logvar


class State(train_state.TrainState):
    stats: dict
    key: jax.Array


@struct.dataclass
class Running:
    loss: jax.Array
    count: jax.Array

    @classmethod
    def empty(cls):
        return cls(jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32))


@functools.partial(jax.jit, donate_argnums=(0, 1))
def train_step(state, running, x, beta):
    key = jax.random.fold_in(state.key, state.step)

    def loss_fn(params):
        (rec, mean, logvar), upd = state.apply_fn({"params": params, "batch_stats": state.stats}, x, True,
                                                  rngs={"latent": key}, mutable=["batch_stats"])
        kl = 0.5 * jnp.sum(jnp.exp(logvar) + mean ** 2 - 1 - logvar, -1)
        return jnp.mean(jnp.sum((rec - x) ** 2, (1, 2)) + beta * kl), upd["batch_stats"]

    (loss, stats), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    running = Running(running.loss + loss, running.count + 1)
    return state.apply_gradients(grads=grads, stats=stats), running


@jax.jit
def score(state, x):
    rec, _, _ = state.apply_fn({"params": state.params, "batch_stats": state.stats}, x, False)
    return jnp.sum((rec - x) ** 2, (1, 2))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--batch", type=int, default=64)
    args = ap.parse_args()
    rng = np.random.default_rng(0)
    train, normal, odd = beats(4096, rng), beats(256, rng), beats(256, rng, anomalous=True)
    model = VAE()
    variables = model.init({"params": jax.random.key(0), "latent": jax.random.key(1)}, train[:1], True)
    steps = args.epochs * (len(train) // args.batch)
    state = State.create(apply_fn=model.apply, params=variables["params"],
                         tx=optax.adam(optax.cosine_decay_schedule(2e-3, steps)),
                         stats=variables["batch_stats"], key=jax.random.key(2))
    running, start = Running.empty(), time.perf_counter()
    for i, x in enumerate(prefetch(stream(train, args.batch, args.epochs, 1)), 1):
        beta = np.float32(min(1.0, i / (0.3 * steps)) * 0.1)
        state, running = train_step(state, running, x, beta)
        if i % 64 == 0:
            total = jax.block_until_ready(running)
            print(f"step {i} loss {float(total.loss) / int(total.count):.3f} {time.perf_counter() - start:.1f} s")
            running = Running.empty()
        if i % 256 == 0 or i == steps:
            a, b = np.asarray(score(state, normal)), np.asarray(score(state, odd))
            print(f"   auc {np.mean(b[:, None] > a[None]):.3f}")


if __name__ == "__main__":
    main()
