"""Leaf disease classifier (flax.nnx) trained at two resolutions, small first, with a loader thread."""
import itertools
import queue
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

CLASSES = 5
STAGES = ((16, 250), (24, 250))  # side, steps
BATCH = 32


def render(rng, n, side):
    """Leaves with spots whose number, size and tint depend on the disease."""
    label = rng.integers(0, CLASSES, n)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, side)] * 2), -1)
    image = np.zeros((n, side, side, 3), np.float32)
    image[..., 1] = 0.5 * (np.abs(grid[..., 0]) < 0.8)
    for k in range(3):
        centre = rng.uniform(-.7, .7, (n, 1, 1, 2))
        radius = (0.15 + 0.05 * label)[:, None, None]
        spot = ((grid - centre) ** 2).sum(-1) < radius**2
        image[..., 0] += spot * (0.2 + 0.15 * (label == k + 1))[:, None, None]
        image[..., 2] += spot * (0.1 * label)[:, None, None]
    return image + 0.1 * rng.standard_normal(image.shape, dtype=np.float32), label.astype(np.int32)


class Loader:
    """Draws batches in a thread and puts them on the device ahead of time."""

    def __init__(self, seed, side, steps, ahead=3):
        self.queue = queue.Queue(ahead)
        rng = np.random.default_rng(seed)
        self.args = (rng, *render(rng, 1600, side), steps)
        threading.Thread(target=self._produce, daemon=True).start()

    def _produce(self):
        rng, images, labels, steps = self.args
        for _ in range(steps):
            rows = rng.integers(0, len(images), BATCH)
            self.queue.put(jax.device_put((images[rows], labels[rows])))
        self.queue.put(None)

    def __iter__(self):
        return iter(self.queue.get, None)


class LeafNet(nnx.Module):
    def __init__(self, rngs):
        self.conv1 = nnx.Conv(3, 12, (3, 3), strides=2, rngs=rngs)
        self.conv2 = nnx.Conv(12, 24, (3, 3), strides=2, rngs=rngs)
        self.norm = nnx.LayerNorm(24, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)
        self.head = nnx.Linear(24, CLASSES, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.conv1(x))
        x = nnx.relu(self.norm(self.conv2(x)))
        return self.head(self.drop(x.mean((1, 2))))


@nnx.jit
def train_step(model, optimizer, x, y):
    def loss_fn(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    loss, grads = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss


@nnx.jit
def correct(model, x, y, weight):
    return ((model(x).argmax(-1) == y) * weight).sum()


def evaluate(model, images, labels, size=64):
    """All of the test set; the last batch is filled up, its filling weighs nothing."""
    model.eval()
    total = 0
    for i in range(0, len(images), size):
        x, y = images[i:i + size], labels[i:i + size]
        weight = np.zeros(size, np.float32)
        weight[:len(x)] = 1
        fill = size - len(x)
        x, y = np.pad(x, ((0, fill), (0, 0), (0, 0), (0, 0))), np.pad(y, (0, fill))
        total += correct(model, x, y, weight)
    model.train()
    return float(total) / len(images)


def main():
    model = LeafNet(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(3e-3), wrt=nnx.Param)
    test = render(np.random.default_rng(99), 300, STAGES[-1][0])
    start, done = time.perf_counter(), 0
    for number, (side, steps) in enumerate(STAGES):
        step_fn = nnx.cached_partial(train_step, model, optimizer)
        for step, (x, y) in zip(itertools.count(1), Loader(number, side, steps)):
            loss = step_fn(x, y)
            if step % 50 == 0:
                print(f"side {side} step {step} loss {float(loss):.4f} {time.perf_counter() - start:.1f} s")
            done += 1
    print(f"{done} steps, test accuracy {evaluate(model, *test):.3f}, {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
