"""Speculation-free LLM decoding server in miniature: a small decoder answers
requests from a queue, greedy or with a temperature, with a key/value cache.
"""
import dataclasses
import time
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass
class Request:
    prompt: np.ndarray
    new_tokens: int
    temperature: float


class Block(eqx.Module):
    qkv: eqx.nn.Linear
    out: eqx.nn.Linear
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    norm1: eqx.nn.RMSNorm
    norm2: eqx.nn.RMSNorm
    heads: int = eqx.field(static=True)

    def __init__(self, dim, heads, key):
        k = jax.random.split(key, 4)
        self.qkv = eqx.nn.Linear(dim, 3 * dim, use_bias=False, key=k[0])
        self.out = eqx.nn.Linear(dim, dim, use_bias=False, key=k[1])
        self.up = eqx.nn.Linear(dim, 4 * dim, key=k[2])
        self.down = eqx.nn.Linear(4 * dim, dim, key=k[3])
        self.norm1, self.norm2 = eqx.nn.RMSNorm(dim), eqx.nn.RMSNorm(dim)
        self.heads = heads

    def __call__(self, x, cache, start, mask):
        """x: (t, dim); cache: (2, max_len, heads, d); mask: (t, max_len)."""
        t, dim = x.shape
        q, k, v = jnp.split(jax.vmap(self.qkv)(jax.vmap(self.norm1)(x)), 3, -1)
        q, k, v = (a.reshape(t, self.heads, -1) for a in (q, k, v))
        cache = jax.lax.dynamic_update_slice(cache, jnp.stack([k, v]), (0, start, 0, 0))
        score = jnp.einsum("thd,shd->hts", q, cache[0]) / np.sqrt(dim // self.heads)
        weights = jax.nn.softmax(jnp.where(mask[None], score, -1e9), -1)
        mixed = jnp.einsum("hts,shd->thd", weights, cache[1]).reshape(t, dim)
        x = x + jax.vmap(self.out)(mixed)
        h = jax.nn.gelu(jax.vmap(self.up)(jax.vmap(self.norm2)(x)))
        return x + jax.vmap(self.down)(h), cache


class Decoder(eqx.Module):
    embed: jax.Array
    position: jax.Array
    blocks: list

    def __init__(self, vocab=2048, dim=192, heads=6, depth=4, max_len=256, *, key):
        k = jax.random.split(key, depth + 2)
        self.embed = 0.3 * jax.random.normal(k[0], (vocab, dim))
        self.position = 0.1 * jax.random.normal(k[1], (max_len, dim))
        self.blocks = [Block(dim, heads, b) for b in k[2:]]

    @property
    def max_len(self):
        return len(self.position)

    def empty_cache(self):
        b = self.blocks[0]
        dim = self.embed.shape[1]
        return jnp.zeros((len(self.blocks), 2, self.max_len, b.heads, dim // b.heads))

    def __call__(self, tokens, cache, start):
        where = start + jnp.arange(len(tokens))
        x = self.embed[tokens] + self.position[where]
        mask = jnp.arange(self.max_len)[None] <= where[:, None]
        layers = []
        for block, c in zip(self.blocks, cache):
            x, c = block(x, c, start, mask)
            layers.append(c)
        return x @ self.embed.T, jnp.stack(layers)


BUCKETS = (16, 32, 64, 128)


@eqx.filter_jit
def prefill(model, tokens, length, cache):
    logits, cache = model(tokens, cache, 0)
    return logits[length - 1], cache


@eqx.filter_jit
def decode_one(model, logits, cache, position, temperature, key):
    noisy = logits / jnp.maximum(temperature, 1e-3) + jax.random.gumbel(key, logits.shape)
    token = jnp.where(temperature > 0, jnp.argmax(noisy), jnp.argmax(logits))
    logits, cache = model(token[None], cache, position)
    return token, logits[0], cache


class Server:
    def __init__(self, model, seed=0):
        self.model, self.key = model, jax.random.key(seed)

    def answer(self, request):
        n = len(request.prompt)
        bucket = next(b for b in BUCKETS if b >= n)
        padded = np.zeros(bucket, np.int32)
        padded[:n] = request.prompt
        logits, cache = prefill(self.model, padded, jnp.int32(n), self.model.empty_cache())
        self.key, sub = jax.random.split(self.key)
        keys = jax.random.split(sub, request.new_tokens)
        produced = []
        for i, k in enumerate(keys):
            token, logits, cache = decode_one(self.model, logits, cache, jnp.int32(n + i),
                                              request.temperature, k)
            produced.append(token)
        return np.asarray(jnp.stack(produced))


def workload(count, rng):
    for _ in range(count):
        prompt = rng.integers(0, 2048, rng.integers(5, 120)).astype(np.int32)
        warmth = round(float(rng.choice([0.0, rng.uniform(0.2, 1.2)], p=[0.3, 0.7])), 2)
        yield Request(prompt, 48, warmth)


if __name__ == "__main__":
    server = Server(Decoder(key=jax.random.key(1)))
    begin, total, latencies = time.perf_counter(), 0, []
    for request in workload(32, np.random.default_rng(9)):
        t = time.perf_counter()
        total += len(server.answer(request))
        latencies.append(time.perf_counter() - t)
    spent = time.perf_counter() - begin
    print(f"{total} tokens in {spent:.1f} s ({total / spent:.0f}/s); "
          f"median latency {np.median(latencies):.2f} s, worst {max(latencies):.2f} s")
