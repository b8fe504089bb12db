"""Learns folk-like melodies with a small causal transformer (linen), then writes new ones."""
import time
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

SCALE = np.array([0, 2, 4, 5, 7, 9, 11])
NOTES, CONTEXT = 26, 20
REST, START = 24, 25


def folk_tune(rng, bars=8):
    degree, tune = int(rng.integers(0, 7)), [START]
    motif = rng.integers(-2, 3, 4)
    for bar in range(bars):
        steps = motif if bar % 2 == 0 else rng.integers(-2, 3, 4)
        for s in steps:
            degree = int(np.clip(degree + s, 0, 13))
            tune.append(int(SCALE[degree % 7] + 12 * (degree // 7)) if rng.random() > 0.07 else REST)
    return np.array(tune, np.int32)


class Block(nn.Module):
    dim: int
    heads: int

    @nn.compact
    def __call__(self, x):
        mask = nn.make_causal_mask(jnp.zeros(x.shape[:2]))
        h = nn.LayerNorm()(x)
        x = x + nn.SelfAttention(self.heads)(h, mask=mask)
        h = nn.LayerNorm()(x)
        return x + nn.Dense(self.dim)(nn.gelu(nn.Dense(3 * self.dim)(h)))


class Composer(nn.Module):
    dim: int = 48
    depth: int = 2

    @nn.compact
    def __call__(self, notes):
        pos = self.param("pos", nn.initializers.normal(0.02), (CONTEXT, self.dim))
        x = nn.Embed(NOTES, self.dim)(notes) + pos[: notes.shape[1]]
        for _ in range(self.depth):
            x = Block(self.dim, 4)(x)
        return nn.Dense(NOTES)(nn.LayerNorm()(x))


model = Composer()
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(3e-3, weight_decay=0.01))


@partial(jax.jit, donate_argnums=(0, 1))
def fit_step(params, opt, notes):
    def loss_fn(p):
        logits = model.apply(p, notes[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, notes[:, 1:]).mean()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt = tx.update(grads, opt, params)
    return optax.apply_updates(params, updates), opt, loss


@jax.jit
def next_note(params, notes, key, temperature):
    logits = model.apply(params, notes)[:, -1] / temperature
    top, _ = jax.lax.top_k(logits, 8)
    logits = jnp.where(logits < top[:, -1:], -1e9, logits)
    return jax.random.categorical(key, logits.at[:, START].set(-1e9))


class Writer:
    def __init__(self, params, seed=0):
        self.params, self.key = params, jax.random.key(seed)

    def write(self, voices, length, temperature):
        self.key, sub = jax.random.split(self.key)
        keys = jax.random.split(sub, length)
        tune = np.full((voices, 1), START, np.int32)
        for i in range(length):
            window = tune[:, -CONTEXT:]
            note = next_note(self.params, window, keys[i], temperature)
            tune = np.concatenate([tune, np.asarray(note)[:, None]], axis=1)
        return tune[:, 1:]


def smoothness(tune):
    played = np.where(tune == REST, np.nan, tune.astype(float))
    return np.nanmean(np.abs(np.diff(played, axis=1)))


def main():
    rng = np.random.default_rng(2)
    tunes = np.stack([folk_tune(rng) for _ in range(400)])
    params = model.init(jax.random.key(0), jnp.zeros((1, CONTEXT), jnp.int32))
    opt = tx.init(params)
    began, losses = time.time(), []
    for step in range(1, 61):
        rows = rng.integers(0, len(tunes), 32)
        at = rng.integers(0, tunes.shape[1] - CONTEXT, 32)
        batch = tunes[rows[:, None], at[:, None] + np.arange(CONTEXT + 1)]
        params, opt, loss = fit_step(params, opt, batch)
        losses.append(loss)
        if step % 30 == 0:
            print(f"step {step} loss {np.mean(jax.device_get(losses[-30:])):.3f} {time.time() - began:.1f}s", flush=True)
    writer = Writer(params)
    for temperature in (0.7, 1.0, 1.3):
        tune = writer.write(6, 64, temperature)
        print(f"temperature {temperature} smoothness {smoothness(tune):.2f} {time.time() - began:.1f}s", tune[0, :12], flush=True)


if __name__ == "__main__":
    main()
