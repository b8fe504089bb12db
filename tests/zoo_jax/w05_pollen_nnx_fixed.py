"""Pollen grain classification from small microscope crops (flax.nnx)."""
import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

CLASSES = 6
SIDE = 20


@dataclasses.dataclass
class Settings:
    width: int = 16
    blocks: int = 2
    batch: int = 64
    epochs: int = 6
    peak_lr: float = 2e-3
    max_drop_path: float = 0.2
    eval_every: int = 8


def render(n, seed):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, CLASSES, n)
    yy, xx = np.mgrid[0:SIDE, 0:SIDE] / (SIDE - 1) * 2 - 1
    cx, cy = rng.uniform(-0.2, 0.2, (2, n, 1, 1))
    radius = rng.uniform(0.45, 0.65, (n, 1, 1))
    theta = np.arctan2(yy - cy, xx - cx)
    r = np.hypot(yy - cy, xx - cx)
    lobes = (label + 2)[:, None, None]
    edge = radius * (1 + 0.15 * np.cos(lobes * theta + rng.uniform(0, 6.28, (n, 1, 1))))
    image = 1 / (1 + np.exp((r - edge) * 12)) * (0.6 + 0.4 * np.cos(r * (6 + lobes)))
    image = image + rng.normal(0, 0.12, image.shape)
    return image[..., None].astype(np.float32), label.astype(np.int32)


class ConvBlock(nnx.Module):
    def __init__(self, width, rate, rngs):
        self.norm = nnx.GroupNorm(width, num_groups=4, rngs=rngs)
        self.conv1 = nnx.Conv(width, width, (3, 3), rngs=rngs)
        self.conv2 = nnx.Conv(width, width, (3, 3), rngs=rngs)
        self.scale = nnx.Param(jnp.full((width,), 0.5))
        self.rate = rate
        self.rngs = rngs

    def __call__(self, x, progress, train):
        y = nnx.relu(self.conv1(self.norm(x)))
        y = self.conv2(y) * self.scale[...]
        if train:
            keep = 1.0 - self.rate * progress
            alive = jax.random.bernoulli(self.rngs.drop(), keep, (x.shape[0], 1, 1, 1))
            y = y * alive / keep
        return x + y


class PollenNet(nnx.Module):
    def __init__(self, cfg: Settings, rngs: nnx.Rngs):
        self.stem = nnx.Conv(1, cfg.width, (5, 5), strides=2, rngs=rngs)
        rates = np.linspace(0, cfg.max_drop_path, cfg.blocks + 1)[1:]
        self.blocks = nnx.List([ConvBlock(cfg.width, float(r), rngs) for r in rates])
        self.head = nnx.Linear(cfg.width, CLASSES, rngs=rngs)
        self.epochs = cfg.epochs
        self.epoch = nnx.Variable(jnp.zeros((), jnp.float32))

    def begin_epoch(self, epoch):
        self.epoch.set_value(jnp.float32(epoch))

    def __call__(self, x, train=False):
        progress = self.epoch[...] / self.epochs
        x = nnx.relu(self.stem(x))
        for block in self.blocks:
            x = block(x, progress, train)
        return self.head(x.mean(axis=(1, 2)))


def loss_fn(model, images, labels):
    logits = model(images, train=True)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    return loss, logits


@nnx.jit
def train_step(model, optimizer, metrics, images, labels):
    (loss, logits), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model, images, labels)
    optimizer.update(model, grads)
    metrics.update(loss=loss, logits=logits, labels=labels)


@nnx.jit
def predict(model, images):
    return jnp.argmax(model(images), axis=-1)


def evaluate(model, images, labels, size=64):
    correct = 0
    confusion = np.zeros((CLASSES, CLASSES), int)
    for start in range(0, len(images), size):
        guess = np.asarray(predict(model, images[start : start + size]))
        truth = labels[start : start + size]
        np.add.at(confusion, (truth, guess), 1)
        correct += int((guess == truth).sum())
    return correct / len(images), confusion


def main():
    cfg = Settings()
    images, labels = render(2048, seed=0)
    val_images, val_labels = render(768, seed=1)
    steps = len(images) // cfg.batch
    schedule = optax.warmup_cosine_decay_schedule(0.0, cfg.peak_lr, steps, cfg.epochs * steps)

    @nnx.jit
    def create():
        model = PollenNet(cfg, nnx.Rngs(0, drop=1))
        return model, nnx.Optimizer(model, optax.adamw(schedule), wrt=nnx.Param)

    model, optimizer = create()
    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"), accuracy=nnx.metrics.Accuracy())
    rng = np.random.default_rng(7)

    best, began = 0.0, time.perf_counter()
    for epoch in range(cfg.epochs):
        model.begin_epoch(epoch)
        metrics.reset()
        order = rng.permutation(len(images))
        for step in range(steps):
            pick = order[step * cfg.batch : (step + 1) * cfg.batch]
            train_step(model, optimizer, metrics, images[pick], labels[pick])
            if (step + 1) % cfg.eval_every == 0:
                accuracy, confusion = evaluate(model, val_images, val_labels)
                best = max(best, accuracy)
        summary = metrics.compute()
        print(
            f"epoch {epoch}: loss {float(summary['loss']):.3f} acc {float(summary['accuracy']):.3f} "
            f"val {accuracy:.3f} best {best:.3f} worst class {int((confusion.diagonal() / confusion.sum(1)).argmin())} "
            f"[{time.perf_counter() - began:.1f}s]"
        )


if __name__ == "__main__":
    main()
