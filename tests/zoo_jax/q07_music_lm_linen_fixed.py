"""Tiny transformer over folk-tune tokens (flax.linen): train, score whole tunes, improvise new ones."""
import functools
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

VOCAB = 40
BOS, EOS = 0, 1
CONTEXT = 96
DIM, HEADS, LAYERS = 48, 4, 2


def compose(rng):
    """A random walk over a scale with repeated phrases, between 30 and 90 tokens long."""
    scale = np.sort(rng.choice(np.arange(2, VOCAB), 9, replace=False))
    phrase = np.clip(np.cumsum(rng.integers(-2, 3, rng.integers(6, 14))) + 4, 0, 8)
    length = int(rng.integers(30, 90))
    body = np.resize(scale[phrase], length)
    mutate = rng.random(length) < 0.05
    body[mutate] = rng.choice(scale, mutate.sum())
    return np.concatenate([[BOS], body, [EOS]]).astype(np.int32)


class DecoderLayer(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        h = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(HEADS, qkv_features=DIM)(h, h, mask=mask)
        h = nn.LayerNorm()(x)
        return x + nn.Dense(DIM)(nn.gelu(nn.Dense(3 * DIM)(h)))


class TuneLM(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        pos = jnp.arange(tokens.shape[-1])
        x = nn.Embed(VOCAB, DIM)(tokens) + nn.Embed(CONTEXT, DIM)(pos)
        mask = nn.make_causal_mask(tokens)
        for _ in range(LAYERS):
            x = DecoderLayer()(x, mask)
        return nn.Dense(VOCAB)(nn.LayerNorm()(x))


model = TuneLM()
tx = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 3e-3, 20, 100), weight_decay=0.01)


def token_nll(params, tokens):
    logits = model.apply(params, tokens[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])


@functools.partial(jax.jit, donate_argnums=(0, 1))
def train_step(params, opt_state, tokens):
    def loss_fn(p):
        keep = jnp.cumsum(tokens[:, 1:] == EOS, axis=1) <= (tokens[:, 1:] == EOS)
        nll = token_nll(p, tokens)
        return (nll * keep).sum() / keep.sum()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


@jax.jit
def tune_scores(params, tunes, lengths):
    nll = token_nll(params, tunes)
    keep = jnp.arange(nll.shape[1]) < lengths[:, None] - 1
    return (nll * keep).sum(1) / keep.sum(1)


def pad(tunes):
    block = np.full((len(tunes), CONTEXT), EOS, np.int32)
    for row, tune in zip(block, tunes):
        row[:min(len(tune), CONTEXT)] = tune[:CONTEXT]
    return block


@functools.partial(jax.jit, static_argnames="length")
def written(params, key, length, temperature):
    def more(carry):
        _, _, i, token = carry
        return (i < length) & (token != EOS)

    def turn(carry):
        buffer, key, i, _ = carry
        logits = model.apply(params, buffer)[0, i]
        key, sub = jax.random.split(key)
        token = jax.random.categorical(sub, logits / temperature).astype(jnp.int32)
        return buffer.at[0, i + 1].set(token), key, i + 1, token

    buffer = jnp.full((1, CONTEXT), EOS, jnp.int32).at[0, 0].set(BOS)
    return jax.lax.while_loop(more, turn, (buffer, key, jnp.int32(0), jnp.int32(BOS)))[0::2]


def improvise(params, key, length=80, temperature=0.9):
    buffer, count = jax.device_get(written(params, key, length, temperature))
    return buffer[0, :count + 1]


def main():
    rng = np.random.default_rng(21)
    tunes = [compose(rng) for _ in range(398)]
    train, held_out = tunes[:384], tunes[384:]
    block = pad(train)
    params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, CONTEXT), jnp.int32))
    opt_state = tx.init(params)
    started = time.perf_counter()
    for step in range(100):
        rows = rng.integers(0, len(block), 16)
        params, opt_state, loss = train_step(params, opt_state, block[rows])
        if step % 25 == 24:
            print(f"step {step + 1} loss {float(loss):.3f} ({time.perf_counter() - started:.1f} s)")

    scores = tune_scores(params, pad(held_out), np.array([min(len(tune), CONTEXT) for tune in held_out]))
    print(f"held-out nll {np.mean(jax.device_get(scores)):.3f} after {time.perf_counter() - started:.1f} s")

    for n, key in enumerate(jax.random.split(jax.random.key(9), 4)):
        tune = improvise(params, key)
        print(f"tune {n} ({len(tune)} tokens): {' '.join(map(str, tune[:20]))} ...")
    print(f"all in {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
