"""Spot keywords in synthetic spectrograms, trained with dropout and batch norm (flax.nnx)."""
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

WORDS = ("yes", "no", "stop", "go")
MELS, FRAMES = 16, 24
BATCH, EVAL_BATCH = 32, 100
STEPS, LOG_EVERY, EVAL_EVERY = 6000, 50, 2000


class Spotter(nnx.Module):
    def __init__(self, rngs):
        self.dense1 = nnx.Linear(MELS, 24, rngs=rngs)
        self.norm = nnx.BatchNorm(24, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.dense2 = nnx.Linear(24 * 4, 32, rngs=rngs)
        self.out = nnx.Linear(32, len(WORDS), rngs=rngs)

    def __call__(self, spec):
        h = nnx.relu(self.norm(self.dense1(spec)))
        h = h.reshape(h.shape[0], 4, FRAMES // 4, -1).mean(2).reshape(h.shape[0], -1)
        return self.out(nnx.relu(self.dense2(self.dropout(h))))


class Speech:
    """Every word is a trajectory of two formants."""

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        t = np.linspace(0, 1, FRAMES)
        tracks = np.array([[4 + 8 * t, 12 - 2 * t], [10 - 6 * t, 6 + 6 * t], [4 + 0 * t, 13 - 9 * t], [3 + 9 * t, 4 + 9 * t]])
        self.labels = self.rng.integers(0, len(WORDS), n).astype(np.int32)
        centre = tracks[self.labels] + self.rng.normal(0, 1.2, (n, 2, 1))
        mel = np.arange(MELS)
        energy = np.exp(-0.5 * ((mel - centre[..., None]) / 1.5) ** 2).sum(1)
        self.specs = (energy + self.rng.normal(0, 0.6, energy.shape)).astype(np.float32)

    def draw(self, n):
        idx = self.rng.integers(0, len(self.labels), n)
        return self.specs[idx], self.labels[idx]

    def in_order(self, n):
        for lo in range(0, len(self.labels), n):
            yield self.specs[lo:lo + n], self.labels[lo:lo + n]


def loss_fn(model, specs, labels):
    logits = model(specs)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    return loss, logits


@nnx.jit
def train_step(model, optimizer, metrics, specs, labels):
    (loss, logits), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model, specs, labels)
    optimizer.update(model, grads)
    metrics.update(loss=loss, logits=logits, labels=labels)


@nnx.jit
def eval_step(model, specs, labels):
    return (model(specs).argmax(-1) == labels).sum()


def evaluate(model, data):
    model.eval()
    correct = [eval_step(model, *batch) for batch in data.in_order(EVAL_BATCH)]
    model.train()
    return sum(int(c) for c in correct) / len(data.labels)


def main():
    train, test = Speech(4000, seed=1), Speech(500, seed=2)
    model = Spotter(nnx.Rngs(params=0, dropout=1))
    optimizer = nnx.Optimizer(model, optax.adamw(2e-3), wrt=nnx.Param)
    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"), accuracy=nnx.metrics.Accuracy())
    step_fn = nnx.cached_partial(train_step, model, optimizer, metrics)
    t0 = time.perf_counter()
    for step in range(1, STEPS + 1):
        specs, labels = train.draw(BATCH)
        step_fn(specs, labels)
        if step % LOG_EVERY == 0:
            values = {k: float(v) for k, v in metrics.compute().items()}
            metrics.reset()
            if step % 1000 == 0:
                rate = step / (time.perf_counter() - t0)
                print(f"step {step} loss {values['loss']:.3f} accuracy {values['accuracy']:.3f} {rate:.0f} steps/s")
        if step % EVAL_EVERY == 0:
            print(f"step {step} test accuracy {evaluate(model, test):.3f}")


if __name__ == "__main__":
    main()
