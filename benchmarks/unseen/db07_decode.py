"""Greedy and sampled decoding with a small causal transformer (plain JAX, no framework).

The weights are trained briefly on a synthetic copy-and-reverse language, then prompts are
completed and the exact-match rate is reported.
"""
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

VOCAB, DIM, HEADS, LAYERS, MAXLEN = 24, 64, 4, 2, 48
SEP, END = 22, 23


def init(key):
    def dense(k, i, o):
        return jax.random.normal(k, (i, o)) / np.sqrt(i)

    keys = iter(jax.random.split(key, 3 + 4 * LAYERS))
    layers = [
        {"qkv": dense(next(keys), DIM, 3 * DIM), "out": dense(next(keys), DIM, DIM),
         "up": dense(next(keys), DIM, 4 * DIM), "down": dense(next(keys), 4 * DIM, DIM)}
        for _ in range(LAYERS)
    ]
    return {"tok": 0.3 * dense(next(keys), VOCAB, DIM), "pos": 0.3 * dense(next(keys), MAXLEN, DIM),
            "layers": layers, "head": dense(next(keys), DIM, VOCAB)}


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def forward(params, tokens):
    b, t = tokens.shape
    x = params["tok"][tokens] + params["pos"][:t]
    causal = jnp.tril(jnp.ones((t, t), bool))
    for lay in params["layers"]:
        q, k, v = jnp.split((norm(x) @ lay["qkv"]).reshape(b, t, HEADS, -1), 3, axis=-1)
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(DIM // HEADS)
        a = jax.nn.softmax(jnp.where(causal, s, -1e9), axis=-1)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", a, v).reshape(b, t, DIM) @ lay["out"]
        x = x + jax.nn.gelu(norm(x) @ lay["up"]) @ lay["down"]
    return norm(x) @ params["head"]


def examples(rng, n, length=10):
    """word SEP reversed-word END, over an alphabet of 22 letters."""
    w = rng.integers(0, 22, (n, length))
    sep, end = np.full((n, 1), SEP), np.full((n, 1), END)
    return np.concatenate([w, sep, w[:, ::-1], end], axis=1).astype(np.int32)


tx = optax.adam(optax.warmup_cosine_decay_schedule(0.0, 3e-3, 50, 400))


@jax.jit
def train_step(params, opt, tokens):
    def loss(p):
        logits = forward(p, tokens[:, :-1])
        ce = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
        return ce[:, 10:].mean()

    value, grads = jax.value_and_grad(loss)(params)
    upd, opt = tx.update(grads, opt)
    return optax.apply_updates(params, upd), opt, value


@jax.jit
def next_logits(params, tokens):
    return forward(params, tokens)[:, -1]


def generate(params, prompt, new_tokens, key=None, temperature=0.0):
    """Complete a batch of prompts."""
    tokens = jnp.asarray(prompt)
    finished = jnp.zeros(len(prompt), bool)
    for _ in range(new_tokens):
        logits = next_logits(params, tokens)
        if temperature > 0:
            key, k = jax.random.split(key)
            nxt = jax.random.categorical(k, logits / temperature)
        else:
            nxt = logits.argmax(-1)
        nxt = jnp.where(finished, END, nxt).astype(jnp.int32)
        finished = finished | (nxt == END)
        tokens = jnp.concatenate([tokens, nxt[:, None]], axis=1)
    return tokens


def main():
    rng = np.random.default_rng(0)
    params = init(jax.random.key(0))
    opt = tx.init(params)
    for step in range(400):
        params, opt, loss = train_step(params, opt, examples(rng, 64))
        if step % 100 == 99:
            print(f"step {step + 1}: loss {float(loss):.3f}")
    for temp in (0.0, 0.7):
        start = time.perf_counter()
        hits = []
        for batch in range(3):
            test = examples(rng, 64)
            out = generate(params, test[:, :11], 24, jax.random.key(batch), temp)
            hits.append(np.mean(np.all(np.asarray(out)[:, :22] == test, axis=1)))
        print(f"temperature {temp}: exact match {np.mean(hits):.3f}  {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
