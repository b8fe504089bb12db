"""Plankton image classifier: linen CNN, plateau decay of the learning rate, random crops."""
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import flax.linen as nn
from flax.training import train_state


def draw_images(count, seed, size=36, classes=5):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:size, :size] / size - 0.5
    labels = rng.integers(0, classes, count)
    images = np.empty((count, size, size, 1), np.uint8)
    for i, c in enumerate(labels):
        a, s = rng.uniform(0, np.pi), rng.uniform(0.8, 1.2)
        u, v = s * (np.cos(a) * xx + np.sin(a) * yy), s * (-np.sin(a) * xx + np.cos(a) * yy)
        r, phi = np.hypot(u, v * (1 + 0.4 * (c % 2))), np.arctan2(v, u)
        shape = (r < 0.3 * (1 + 0.25 * np.cos((c + 1) * phi))).astype(float)
        img = 150 * shape + 40 * rng.normal(size=shape.shape) + 50
        images[i, ..., 0] = np.clip(img, 0, 255)
    return images, labels.astype(np.int32)


class ImageStore:
    """Holds the raw uint8 images and hands out normalised random crops."""

    def __init__(self, images, labels, crop, seed):
        self.images, self.labels, self.crop = images, labels, crop
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.labels)

    def normalised(self):
        x = jnp.asarray(self.images, jnp.float32) / 255.0
        return (x - 0.35) / 0.25

    def batches(self, size):
        order = self.rng.permutation(len(self))
        for i in range(0, len(self) - size + 1, size):
            idx = order[i:i + size]
            top, left = self.rng.integers(0, self.images.shape[1] - self.crop + 1, 2)
            x = jax.lax.dynamic_slice(
                self.normalised()[idx], (0, top, left, 0), (size, self.crop, self.crop, 1))
            yield x, self.labels[idx]

    def center(self, size):
        off = (self.images.shape[1] - self.crop) // 2
        x = np.asarray(self.normalised())[:, off:off + self.crop, off:off + self.crop]
        for i in range(0, len(self) - size + 1, size):
            yield x[i:i + size], self.labels[i:i + size]


class Block(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x, train):
        y = nn.Conv(self.features, (3, 3), use_bias=False)(x)
        y = nn.relu(nn.BatchNorm(use_running_average=not train)(y))
        return nn.avg_pool(y, (2, 2), (2, 2))


class PlanktonNet(nn.Module):
    classes: int = 5

    @nn.compact
    def __call__(self, x, train):
        for f in (8, 16):
            x = Block(f)(x, train)
        x = x.mean((1, 2))
        x = nn.Dropout(0.1, deterministic=not train)(x)
        return nn.Dense(self.classes)(x)


class TrainState(train_state.TrainState):
    batch_stats: Any
    key: Any


class Plateau:
    def __init__(self, lr, factor=0.7, patience=1):
        self.lr, self.factor, self.patience = lr, factor, patience
        self.best, self.bad = np.inf, 0

    def __call__(self, loss):
        self.bad = 0 if loss < 0.98 * self.best else self.bad + 1
        self.best = min(self.best, loss)
        if self.bad >= self.patience:
            self.lr, self.bad = max(1e-5, self.lr * self.factor), 0
        return self.lr


def make_tx(lr):
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(lr, weight_decay=1e-4))


@jax.jit
def train_step(state, x, y):
    key, drop = jax.random.split(state.key)

    def loss_fn(params):
        logits, upd = state.apply_fn({"params": params, "batch_stats": state.batch_stats}, x, True,
                                     mutable=["batch_stats"], rngs={"dropout": drop})
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), upd["batch_stats"]

    (loss, stats), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads, batch_stats=stats, key=key), loss


@jax.jit
def eval_step(variables, x, y):
    logits = PlanktonNet().apply(variables, x, False)
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).sum(), jnp.sum(logits.argmax(-1) == y)


def main(epochs=4, batch=32):
    train = ImageStore(*draw_images(768, 0), crop=32, seed=2)
    valid = ImageStore(*draw_images(256, 1), crop=32, seed=3)
    model = PlanktonNet()
    variables = model.init(jax.random.key(0), jnp.zeros((1, 32, 32, 1)), False)
    plateau = Plateau(3e-3)
    state = TrainState.create(apply_fn=model.apply, params=variables["params"], tx=make_tx(plateau.lr),
                              batch_stats=variables["batch_stats"], key=jax.random.key(1))
    start = time.perf_counter()
    for epoch in range(epochs):
        losses = []
        for x, y in train.batches(batch):
            state, loss = train_step(state, x, y)
            losses.append(loss)
        train_loss = float(np.mean(jax.device_get(losses)))
        variables = {"params": state.params, "batch_stats": state.batch_stats}
        sums = jax.device_get([eval_step(variables, x, y) for x, y in valid.center(64)])
        val_loss, acc = np.sum(sums, axis=0) / len(valid)
        state = state.replace(tx=make_tx(plateau(val_loss)))
        print(f"epoch {epoch} train {train_loss:.3f} valid {val_loss:.3f} acc {acc:.3f} lr {plateau.lr:.1e} "
              f"{time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
