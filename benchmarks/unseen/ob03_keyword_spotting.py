"""Keyword spotting on synthetic utterances of varying length; GRU in plain JAX, length buckets."""
import time
from pathlib import Path
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax

BUCKETS = (32, 64, 96)
FEATURES, CLASSES, HIDDEN, BATCH = 20, 6, 64, 32
STEPS, LOG_EVERY, EVAL_EVERY = 800, 50, 400


def synth(count, seed):
    rng = np.random.default_rng(seed)
    protos = np.random.default_rng(99).normal(size=(CLASSES, 12, FEATURES))
    items = []
    for _ in range(count):
        length = int(rng.integers(16, 97))
        label = int(rng.integers(CLASSES))
        x = rng.normal(0, 1.0, (length, FEATURES))
        at = int(rng.integers(0, length - 12))
        x[at:at + 12] += protos[label]
        items.append((x.astype(np.float32), label))
    return items


class BucketSampler:
    """Groups utterances by the smallest bucket they fit in; every batch has one of three shapes."""

    def __init__(self, items, seed):
        self.rng = np.random.default_rng(seed)
        self.groups = {b: [] for b in BUCKETS}
        for x, label in items:
            bucket = next(b for b in BUCKETS if len(x) <= b)
            padded = np.zeros((bucket, FEATURES), np.float32)
            padded[: len(x)] = x
            self.groups[bucket].append((padded, len(x), label))
        self.weights = np.array([len(g) for g in self.groups.values()], float)
        self.weights /= self.weights.sum()
        self.arrays = {b: [np.stack(c) for c in zip(*g)] for b, g in self.groups.items()}

    def draw(self):
        bucket = BUCKETS[self.rng.choice(len(BUCKETS), p=self.weights)]
        x, length, label = self.arrays[bucket]
        idx = self.rng.integers(0, len(x), BATCH)
        return x[idx], length[idx].astype(np.int32), label[idx].astype(np.int32)

    def fixed(self, per_bucket=4):
        for x, length, label in self.arrays.values():
            for i in range(0, min(len(x) - BATCH, per_bucket * BATCH), BATCH):
                s = slice(i, i + BATCH)
                yield x[s], length[s].astype(np.int32), label[s].astype(np.int32)


def init(key):
    k = jax.random.split(key, 3)
    s = HIDDEN ** -0.5
    return {
        "wx": jax.random.normal(k[0], (FEATURES, 3 * HIDDEN)) * FEATURES ** -0.5,
        "wh": jax.random.normal(k[1], (HIDDEN, 3 * HIDDEN)) * s,
        "b": jnp.zeros(3 * HIDDEN),
        "out": jax.random.normal(k[2], (HIDDEN, CLASSES)) * s,
    }


def logits_fn(params, x, length, key, dropout):
    gates_x = x @ params["wx"] + params["b"]

    def cell(carry, inp):
        h, best = carry
        gx, t = inp
        gh = h @ params["wh"]
        z = jax.nn.sigmoid(gx[:, :HIDDEN] + gh[:, :HIDDEN])
        r = jax.nn.sigmoid(gx[:, HIDDEN:2 * HIDDEN] + gh[:, HIDDEN:2 * HIDDEN])
        n = jnp.tanh(gx[:, 2 * HIDDEN:] + r * gh[:, 2 * HIDDEN:])
        h = (1 - z) * n + z * h
        best = jnp.where((t < length)[:, None], jnp.maximum(best, h), best)
        return (h, best), None

    h0 = jnp.zeros((x.shape[0], HIDDEN))
    steps = jnp.arange(x.shape[1])
    (_, best), _ = jax.lax.scan(cell, (h0, h0 - 1.0), (gates_x.swapaxes(0, 1), steps))
    if dropout:
        best = best * jax.random.bernoulli(key, 0.8, best.shape) / 0.8
    return best @ params["out"]


schedule = optax.warmup_cosine_decay_schedule(1e-4, 3e-3, 100, STEPS)
opt = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))


def train_step(params, opt_state, key, x, length, label):
    key, sub = jax.random.split(key)

    def loss_fn(p):
        out = logits_fn(p, x, length, sub, dropout=True)
        return optax.softmax_cross_entropy_with_integer_labels(out, label).mean()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = opt.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, key, loss


train_step = jax.jit(train_step, donate_argnums=(0, 1, 2))


@jax.jit
def count_correct(params, x, length, label):
    return jnp.sum(logits_fn(params, x, length, None, dropout=False).argmax(-1) == label)


def evaluate(params, sampler):
    counts = [count_correct(params, *batch) for batch in sampler.fixed()]
    return float(np.sum(jax.device_get(counts))) / (len(counts) * BATCH)


def main():
    train, test = BucketSampler(synth(3000, 0), 1), BucketSampler(synth(800, 5), 2)
    key = jax.random.key(0)
    params = init(jax.random.fold_in(key, 1))
    opt_state = opt.init(params)
    ckpt_dir = Path(tempfile.mkdtemp())
    start = time.perf_counter()
    for step in range(1, STEPS + 1):
        params, opt_state, key, loss = train_step(params, opt_state, key, *train.draw())
        if step % LOG_EVERY == 0:
            rate = step / (time.perf_counter() - start)
            print(f"step {step:5d}  loss {loss.item():.4f}  {rate:.0f} steps/s")
        if step % EVAL_EVERY == 0:
            print(f"            accuracy {evaluate(params, test):.3f}")
            np.savez(ckpt_dir / f"{step}.npz", **jax.device_get(params))


if __name__ == "__main__":
    main()
