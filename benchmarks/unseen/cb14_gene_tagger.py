"""Exon tagger for synthetic genes of different length: length buckets, dropout, cosine schedule."""
import itertools
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training import train_state

BUCKETS = (48, 72, 96)
ALPHABET = 5


class Block(nn.Module):
    dim: int
    dilation: int
    rate: float = 0.1

    @nn.compact
    def __call__(self, x, train):
        d = self.dilation
        near = jnp.concatenate([x, jnp.roll(x, d, 1), jnp.roll(x, -d, 1)], -1)
        h = nn.Dropout(self.rate, deterministic=not train)(nn.relu(nn.Dense(self.dim)(near)))
        return x + nn.Dense(self.dim)(h)


class Tagger(nn.Module):
    dim: int = 32

    @nn.compact
    def __call__(self, seq, train=False):
        x = nn.Embed(ALPHABET, self.dim)(seq)
        for d in (1, 3):
            x = Block(self.dim, d)(x, train)
        return nn.Dense(3)(x)


class TrainState(train_state.TrainState):
    key: jax.Array


class GeneStream:
    """Collects genes until a bucket has a full batch, and yields that batch."""

    def __init__(self, batch, seed):
        self.batch, self.rng = batch, np.random.default_rng(seed)
        self.waiting = {b: [] for b in BUCKETS}

    def gene(self):
        n = int(self.rng.integers(30, BUCKETS[-1] + 1))
        tags = np.zeros(n, np.int32)
        a = int(self.rng.integers(3, n // 2))
        tags[a : a + n // 3] = 1
        tags[a] = 2
        seq = np.where(tags > 0, self.rng.choice([1, 2], n), self.rng.integers(1, ALPHABET, n))
        return seq.astype(np.int32), tags

    def pack(self, genes, width):
        seq = np.zeros((self.batch, width), np.int32)
        tags, mask = np.zeros_like(seq), np.zeros((self.batch, width), np.float32)
        for i, (s, t) in enumerate(genes):
            seq[i, : len(s)], tags[i, : len(s)], mask[i, : len(s)] = s, t, 1
        return seq, tags, mask

    def __iter__(self):
        while True:
            g = self.gene()
            width = next(b for b in BUCKETS if len(g[0]) <= b)
            self.waiting[width].append(g)
            if len(self.waiting[width]) == self.batch:
                yield self.pack(self.waiting[width], width)
                self.waiting[width] = []


@partial(jax.jit, donate_argnums=0)
def train_step(state, seq, tags, mask):
    key = jax.random.fold_in(state.key, state.step)

    def loss_fn(p):
        logits = state.apply_fn({"params": p}, seq, train=True, rngs={"dropout": key})
        ce = optax.softmax_cross_entropy_with_integer_labels(logits, tags)
        return (ce * mask).sum() / mask.sum()

    loss, g = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=g), loss


@jax.jit
def eval_step(params, seq, tags, mask):
    pred = Tagger().apply({"params": params}, seq).argmax(-1)
    return ((pred == tags) * mask).sum(), mask.sum()


class Meter:
    def __init__(self):
        self.pending = []

    def add(self, loss):
        self.pending.append(loss)

    def flush(self):
        values = jax.device_get(self.pending)
        self.pending = []
        return float(np.mean(values))


def evaluate(params, batches):
    pairs = jax.device_get([eval_step(params, *b) for b in batches])
    right, total = np.sum(pairs, 0)
    return float(right / total)


def main(steps=600, batch=16, log_every=50, eval_every=150):
    schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-3, 60, steps)
    tx = optax.adam(schedule)
    model = Tagger()

    @jax.jit
    def create(key):
        params = model.init(key, jnp.zeros((1, BUCKETS[0]), jnp.int32))["params"]
        state = TrainState.create(apply_fn=model.apply, params=params, tx=tx, key=jax.random.fold_in(key, 1))
        return state.replace(step=jnp.zeros((), jnp.int32))

    state = create(jax.random.key(0))
    val = list(itertools.islice(GeneStream(batch, 1), 12))
    meter, t0 = Meter(), time.time()
    for step, data in enumerate(itertools.islice(GeneStream(batch, 0), steps), 1):
        state, loss = train_step(state, *data)
        meter.add(loss)
        if step % log_every == 0:
            jax.block_until_ready(loss)
            print(f"step {step} loss {meter.flush():.4f} {time.time() - t0:.1f}s")
        if step % eval_every == 0:
            print(f"   validation accuracy {evaluate(state.params, val):.4f}")


if __name__ == "__main__":
    main()
