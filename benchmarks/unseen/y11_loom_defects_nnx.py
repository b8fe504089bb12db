"""Detection of weaving defects in patches of fabric with a small Flax NNX network."""
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

PATCH, CLASSES = 32, 4
BATCH, EVAL_BATCH = 32, 120


class Fabric(NamedTuple):
    images: np.ndarray
    labels: np.ndarray


def weave(n, rng):
    yy, xx = np.mgrid[:PATCH, :PATCH]
    fx, fy = rng.uniform(0.8, 1.2, (2, n, 1, 1))
    img = 0.5 + 0.2 * np.sin(fx * xx) + 0.2 * np.sin(fy * yy) + rng.normal(0, 0.06, (n, PATCH, PATCH))
    labels = rng.integers(CLASSES, size=n)
    at = rng.integers(6, PATCH - 6, n)
    for i in range(n):
        if labels[i] == 1:
            img[i, at[i]:at[i] + 2, :] -= 0.35                          # missing weft
        elif labels[i] == 2:
            img[i, :, at[i]:at[i] + 2] -= 0.35                          # missing warp
        elif labels[i] == 3:
            img[i] -= 0.6 * np.exp(-((yy - at[i]) ** 2 + (xx - at[i]) ** 2) / 12)   # stain
    return Fabric(img[..., None].astype(np.float32), labels.astype(np.int32))


class Block(nnx.Module):
    def __init__(self, n_in, n_out, rngs):
        self.conv = nnx.Conv(n_in, n_out, (3, 3), use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(n_out, momentum=0.9, rngs=rngs)

    def __call__(self, x):
        return nnx.max_pool(nnx.relu(self.norm(self.conv(x))), (2, 2), (2, 2))


class DefectNet(nnx.Module):
    def __init__(self, rngs):
        self.first = Block(1, 12, rngs)
        self.second = Block(12, 24, rngs)
        self.drop = nnx.Dropout(0.2, rngs=rngs)
        self.head = nnx.Linear(24 * (PATCH // 4) ** 2, CLASSES, rngs=rngs)

    def __call__(self, x):
        x = self.second(self.first(x))
        return self.head(self.drop(x.reshape(x.shape[0], -1)))


def loss_fn(model, images, labels):
    logits = model(images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), logits


@nnx.jit
def train_step(model, optimizer, metrics, images, labels):
    (loss, logits), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model, images, labels)
    optimizer.update(model, grads)
    metrics.update(loss=loss, logits=logits, labels=labels)


@nnx.jit
def predict(model, images):
    return model(images).argmax(-1)


def confusion(model, fabric):
    table = np.zeros((CLASSES, CLASSES), int)
    model.eval()
    guesses = [predict(model, fabric.images[s:s + EVAL_BATCH]) for s in range(0, len(fabric.labels), EVAL_BATCH)]
    model.train()
    np.add.at(table, (fabric.labels, np.concatenate(jax.device_get(guesses))), 1)
    return table


def warm_up(images, labels):
    """Compiles the training step and both inference sizes on a throw-away model."""
    model = DefectNet(nnx.Rngs(params=0, dropout=0))
    optimizer = make_optimizer(model)
    metrics = make_metrics()
    model.train()
    train_step(model, optimizer, metrics, images[:BATCH], labels[:BATCH])
    model.eval()
    for size in (EVAL_BATCH, 1):
        predict(model, images[:size]).block_until_ready()


SCHEDULE = optax.warmup_cosine_decay_schedule(0.0, 3e-3, 20, 150)
TX = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(SCHEDULE, weight_decay=1e-3))


def make_optimizer(model):
    return nnx.Optimizer(model, TX, wrt=nnx.Param)


def make_metrics():
    return nnx.MultiMetric(loss=nnx.metrics.Average("loss"), accuracy=nnx.metrics.Accuracy())


def main():
    rng = np.random.default_rng(31)
    train, test = weave(1600, rng), weave(480, rng)
    warm_up(train.images, train.labels)
    model = DefectNet(nnx.Rngs(params=1, dropout=2))
    optimizer, metrics = make_optimizer(model), make_metrics()
    model.train()
    step = 0
    for epoch in range(3):
        begin = time.perf_counter()
        order = rng.permutation(len(train.labels))
        for s in range(0, len(order) - BATCH + 1, BATCH):
            idx = order[s:s + BATCH]
            train_step(model, optimizer, metrics, train.images[idx], train.labels[idx])
            step += 1
            if step % 50 == 0:
                values = metrics.compute()
                print(f"step {step:4d}  loss {float(values['loss']):.3f}  accuracy {float(values['accuracy']):.3f}")
                metrics.reset()
        table = confusion(model, test)
        print(f"epoch {epoch}  test accuracy {table.trace() / table.sum():.3f}  {time.perf_counter() - begin:.1f} s")

    model.eval()
    waits = []
    for i in range(100):                     # the camera on the loom delivers one patch at a time
        begin = time.perf_counter()
        int(predict(model, test.images[i:i + 1])[0])
        waits.append(time.perf_counter() - begin)
    print(f"single patch: median {1e3 * np.median(waits):.2f} ms")
    print(table)


if __name__ == "__main__":
    main()
