"""Backbone torsion classes of short peptides: an Equinox encoder with annealed softmax.

The temperature of the output layer is lowered a little each epoch and the
encoder is trained with per-residue cross entropy.
"""
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

LENGTH = 24
N_AMINO = 20
N_BINS = 18


def make_peptides(n, seed):
    rng = np.random.default_rng(seed)
    seqs = rng.integers(0, N_AMINO, size=(n, LENGTH))
    helix = np.sin(np.arange(N_AMINO) * 1.3)
    score = helix[seqs]
    smooth = np.stack([np.convolve(row, [0.25, 0.5, 1.0, 0.5, 0.25], mode="same") for row in score])
    bins = np.clip(((smooth + 2.5) / 5.0 * N_BINS).astype(int), 0, N_BINS - 1)
    noise = rng.random(bins.shape) < 0.05
    bins = np.where(noise, rng.integers(0, N_BINS, bins.shape), bins)
    return seqs.astype(np.int32), bins.astype(np.int32)


class Block(eqx.Module):
    norm1: eqx.nn.LayerNorm
    norm2: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    dropout: eqx.nn.Dropout

    def __init__(self, width, heads, key):
        k1, k2, k3 = jr.split(key, 3)
        self.norm1 = eqx.nn.LayerNorm(width)
        self.norm2 = eqx.nn.LayerNorm(width)
        self.attention = eqx.nn.MultiheadAttention(heads, width, key=k1)
        self.up = eqx.nn.Linear(width, 2 * width, key=k2)
        self.down = eqx.nn.Linear(2 * width, width, key=k3)
        self.dropout = eqx.nn.Dropout(0.1)

    def __call__(self, x, key):
        y = jax.vmap(self.norm1)(x)
        x = x + self.attention(y, y, y)
        y = jax.vmap(self.norm2)(x)
        y = jax.vmap(self.down)(jax.nn.gelu(jax.vmap(self.up)(y)))
        return x + self.dropout(y, key=key)


class TorsionNet(eqx.Module):
    embed: eqx.nn.Embedding
    position: jax.Array
    blocks: list
    head: eqx.nn.Linear
    temperature: jax.Array

    def __init__(self, width, depth, key, temperature=2.0):
        k1, k2, k3, *kb = jr.split(key, 3 + depth)
        self.embed = eqx.nn.Embedding(N_AMINO, width, key=k1)
        self.position = 0.02 * jr.normal(k2, (LENGTH, width))
        self.blocks = [Block(width, 2, k) for k in kb]
        self.head = eqx.nn.Linear(width, N_BINS, key=k3)
        self.temperature = jnp.float32(temperature)

    def __call__(self, seq, key=None):
        x = jax.vmap(self.embed)(seq) + self.position
        keys = [None] * len(self.blocks) if key is None else jr.split(key, len(self.blocks))
        for block, k in zip(self.blocks, keys):
            x = block(x, k)
        return jax.vmap(self.head)(x) / jax.lax.stop_gradient(self.temperature)


def trainable(model):
    spec = jax.tree.map(eqx.is_inexact_array, model)
    return eqx.filter(model, eqx.tree_at(lambda m: m.temperature, spec, False))


def cross_entropy(model, seqs, bins, keys):
    logits = jax.vmap(model)(seqs, keys)
    return optax.softmax_cross_entropy_with_integer_labels(logits, bins).mean()


@eqx.filter_jit
def train_step(model, opt_state, optim, seqs, bins, key):
    loss, grads = eqx.filter_value_and_grad(cross_entropy)(model, seqs, bins, jr.split(key, seqs.shape[0]))
    updates, opt_state = optim.update(trainable(grads), opt_state, trainable(model))
    return eqx.apply_updates(model, updates), opt_state, loss


@eqx.filter_jit
def accuracy(model, seqs, bins):
    logits = jax.vmap(model)(seqs)
    return jnp.mean(jnp.argmax(logits, axis=-1) == bins)


def batches(seqs, bins, size, rng):
    order = rng.permutation(len(seqs))
    for start in range(0, len(seqs) - size + 1, size):
        pick = order[start : start + size]
        yield seqs[pick], bins[pick]


def run_epoch(model, opt_state, optim, data, key, rng):
    total = jnp.zeros(())
    count = 0
    for seqs, bins in batches(*data, 64, rng):
        key, sub = jr.split(key)
        model, opt_state, loss = train_step(model, opt_state, optim, seqs, bins, sub)
        total += loss
        count += 1
    return model, opt_state, key, total / count


def main():
    train = make_peptides(1536, 0)
    test = make_peptides(512, 1)
    model = eqx.filter_jit(TorsionNet)(width=32, depth=1, key=jr.key(0))
    optim = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 3e-3, 40, 400), weight_decay=1e-3)
    opt_state = jax.jit(optim.init)(trainable(model))
    key, rng = jr.key(1), np.random.default_rng(2)

    began = time.time()
    for epoch in range(6):
        temperature = max(1.0, 2.0 * 0.88**epoch)
        model = eqx.tree_at(lambda m: m.temperature, model, jnp.float32(temperature))
        model, opt_state, key, loss = run_epoch(model, opt_state, optim, train, key, rng)
        acc = accuracy(eqx.nn.inference_mode(model), *test)
        print(
            f"epoch {epoch:2d}  T {temperature:.3f}  loss {float(loss):.4f}  "
            f"test acc {float(acc):.3f}  {time.time() - began:.1f}s"
        )


if __name__ == "__main__":
    main()
