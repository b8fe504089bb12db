"""Keyword spotting from synthetic audio with flax nnx: buckets of clip lengths, batch norm, early stopping."""
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

RATE, FRAME, HOP, BANDS, WORDS = 4000, 160, 80, 24, 6
BUCKETS = (24, 40)


class Clips:
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.rng = rng
        self.labels = rng.integers(0, WORDS, n)
        self.features = [self.spectrogram(self.speak(w)) for w in self.labels]
        self.bucket = np.array([next(b for b in BUCKETS if len(f) <= b) for f in self.features])

    def speak(self, word):
        seconds = self.rng.uniform(0.3, 0.78)
        t = np.arange(int(seconds * RATE)) / RATE
        sweep = 200 + 150 * word + 300 * t * (word % 3 - 1)
        return np.sin(2 * np.pi * sweep * t) + 0.5 * self.rng.normal(size=len(t))

    @staticmethod
    def spectrogram(x):
        frames = np.lib.stride_tricks.sliding_window_view(x, FRAME)[::HOP]
        power = np.abs(np.fft.rfft(frames * np.hanning(FRAME))) ** 2
        return np.log(power[:, 1:1 + 3 * BANDS].reshape(len(frames), BANDS, 3).sum(-1) + 1e-6).astype(np.float32)

    def batches(self, size, shuffle):
        todo = []
        for b in BUCKETS:
            idx = np.flatnonzero(self.bucket == b)
            if shuffle:
                self.rng.shuffle(idx)
            todo += [(b, idx[i:i + size]) for i in range(0, len(idx) - size + 1, size)]
        if shuffle:
            self.rng.shuffle(todo)
        for b, idx in todo:
            x = np.zeros((size, b, BANDS), np.float32)
            mask = np.zeros((size, b), np.float32)
            for row, i in enumerate(idx):
                f = self.features[i]
                x[row, :len(f)], mask[row, :len(f)] = f, 1
            yield x, mask, self.labels[idx].astype(np.int32)


class Spotter(nnx.Module):
    def __init__(self, rngs, width=64):
        self.inp = nnx.Conv(BANDS, width, (3,), rngs=rngs)
        self.norm = nnx.BatchNorm(width, rngs=rngs)
        self.mid = nnx.Conv(width, width, (5,), rngs=rngs)
        self.drop = nnx.Dropout(0.2, rngs=rngs)
        self.out = nnx.Linear(width, WORDS, rngs=rngs)

    def __call__(self, x, mask):
        h = nnx.relu(self.norm(self.inp(x)))
        h = nnx.relu(self.mid(h)) * mask[..., None]
        return self.out(self.drop(h.sum(1) / mask.sum(1, keepdims=True)))


def loss_fn(model, x, mask, y):
    logits = model(x, mask)
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), logits


@nnx.jit
def train_step(model, optimizer, metrics, x, mask, y):
    (loss, logits), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model, x, mask, y)
    metrics.update(loss=loss, logits=logits, labels=y)
    optimizer.update(model, grads)
    return loss


@nnx.jit
def eval_step(model, x, mask, y):
    return (model(x, mask).argmax(-1) == y).sum()


class EarlyStop:
    def __init__(self, patience):
        self.best, self.bad, self.patience = -1.0, 0, patience

    def __call__(self, value):
        self.bad = 0 if value > self.best else self.bad + 1
        self.best = max(self.best, value)
        return self.bad >= self.patience


def main():
    train, val = Clips(900, 0), Clips(300, 1)
    held = list(val.batches(32, False))
    model = Spotter(nnx.Rngs(params=0, dropout=1))
    schedule = optax.cosine_decay_schedule(3e-3, 1200)
    optimizer = nnx.Optimizer(model, optax.adamw(schedule), wrt=nnx.Param)
    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"), accuracy=nnx.metrics.Accuracy())
    stop, step, began = EarlyStop(30), 0, time.time()
    for epoch in range(25):
        model.train()
        for batch in train.batches(32, True):
            loss = train_step(model, optimizer, metrics, *batch)
            step += 1
            if step % 100 == 0:
                loss.block_until_ready()
                print(f"  step {step} loss {float(loss):.3f} lr {float(schedule(step)):.5f}")
        if epoch % 5 == 4:
            model.eval()
            right = [eval_step(model, *b) for b in held]
            acc = sum(map(int, right)) / (32 * len(held))
            summary = {k: float(v) for k, v in metrics.compute().items()}
            metrics.reset()
            print(f"epoch {epoch} {summary} val {acc:.3f} {time.time() - began:.1f}s", flush=True)
            if stop(acc):
                break


if __name__ == "__main__":
    main()
