"""Train a tiny character transformer on arithmetic text ("37+8=45;") and serve completion requests with a KV cache."""
import dataclasses
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

CHARS = "0123456789+=;"
PAD = len(CHARS)
BUCKETS = (8, 16, 36)          # prompts are padded to one of these, so that prefill compiles three times at most


@dataclasses.dataclass(frozen=True)
class Config:
    width: int = 64
    heads: int = 4
    layers: int = 2
    context: int = 40
    answer: int = 4


def problem(rng):
    a, b = rng.integers(0, 50, 2)
    return f"{a}+{b}={a + b};"


def init(cfg, key):
    dense = lambda k, a, b: jax.random.normal(k, (a, b)) / np.sqrt(a)
    ks = iter(jax.random.split(key, 2 + 4 * cfg.layers))
    layers = [{"qkv": dense(next(ks), cfg.width, 3 * cfg.width), "proj": dense(next(ks), cfg.width, cfg.width) * 0.3,
               "up": dense(next(ks), cfg.width, 4 * cfg.width), "down": dense(next(ks), 4 * cfg.width, cfg.width) * 0.3}
              for _ in range(cfg.layers)]
    return {"emb": jax.random.normal(next(ks), (PAD + 1, cfg.width)) * 0.1,
            "pos": jax.random.normal(next(ks), (cfg.context, cfg.width)) * 0.1, "layers": layers}


def norm(x):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def forward(cfg, params, tokens, start, cache=None):
    """Tokens (B, L) stand at start..start+L-1 of each row; a cache holds keys and values of the whole context."""
    B, L = tokens.shape
    pos = start[:, None] + jnp.arange(L)
    x = params["emb"][tokens] + params["pos"][pos]
    visible = jnp.arange(cfg.context if cache else L)[None, None, :] <= pos[:, :, None]
    rows, new_cache = jnp.arange(B)[:, None], []
    for i, p in enumerate(params["layers"]):
        q, k, v = jnp.split((norm(x) @ p["qkv"]).reshape(B, L, cfg.heads, -1), 3, -1)
        ck, cv = (c.at[rows, pos].set(new) for c, new in zip(cache[i], (k, v))) if cache else (k, v)
        att = jnp.einsum("blhd,bchd->bhlc", q, ck) / np.sqrt(q.shape[-1])
        att = jax.nn.softmax(jnp.where(visible[:, None], att, -1e9))
        x = x + jnp.einsum("bhlc,bchd->blhd", att, cv).reshape(B, L, -1) @ p["proj"]
        x = x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]
        new_cache.append((ck, cv))
    return norm(x) @ params["emb"].T, new_cache


def empty_cache(cfg, B):
    shape = (B, cfg.context, cfg.heads, cfg.width // cfg.heads)
    return [(jnp.zeros(shape), jnp.zeros(shape)) for _ in range(cfg.layers)]


tx = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 4e-3, 50, 500), weight_decay=0.01)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(1, 2))
def train_step(cfg, params, opt_state, tokens):
    def loss_fn(p):
        logits, _ = forward(cfg, p, tokens[:, :-1], jnp.zeros(tokens.shape[0], jnp.int32))
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()
    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


@functools.partial(jax.jit, static_argnums=0)
def complete(cfg, params, prompts, lengths):
    """Prefill, then `cfg.answer` greedy tokens in a scan."""
    B = prompts.shape[0]
    logits, cache = forward(cfg, params, prompts, jnp.zeros(B, jnp.int32), empty_cache(cfg, B))
    first = logits[jnp.arange(B), lengths - 1].argmax(-1)

    def grow(carry, _):
        token, at, cache = carry
        logits, cache = forward(cfg, params, token[:, None], at, cache)
        return (logits[:, 0].argmax(-1), at + 1, cache), token
    return jax.lax.scan(grow, (first, lengths, cache), None, length=cfg.answer)[1].T


def serve(cfg, params, rng, requests, batch=16):
    """Requests carry zero to three solved examples before the question; they are grouped by bucket."""
    queue, right, waits = {b: [] for b in BUCKETS}, 0, []
    for _ in range(requests):
        shown, ask = "".join(problem(rng) for _ in range(rng.integers(0, 4))), problem(rng)
        prompt, want = shown + ask[:ask.index("=") + 1], ask[ask.index("=") + 1:]
        bucket = next(b for b in BUCKETS if len(prompt) <= b)
        queue[bucket].append(([CHARS.index(c) for c in prompt], want))
        if len(queue[bucket]) == batch:
            work, queue[bucket] = queue[bucket], []
            tokens = np.array([p + [PAD] * (bucket - len(p)) for p, _ in work], np.int32)
            begin = time.perf_counter()
            out = np.asarray(complete(cfg, params, tokens, np.array([len(p) for p, _ in work], np.int32)))
            waits.append(time.perf_counter() - begin)           # the reply must reach the client: the wait belongs here
            right += sum("".join((CHARS + "?")[t] for t in row).startswith(want) for row, (_, want) in zip(out, work))
    return right / (len(waits) * batch), np.percentile(waits, [50, 99]) * 1000


if __name__ == "__main__":
    cfg, rng = Config(), np.random.default_rng(11)
    text = np.array([CHARS.index(c) for c in "".join(problem(rng) for _ in range(20000))], np.int32)
    begins = np.flatnonzero(text[:-60] == CHARS.index(";")) + 1
    params = init(cfg, jax.random.key(0))
    opt_state = tx.init(params)
    for epoch in range(5):
        losses = []
        for _ in range(100):
            at = rng.choice(begins, 32)[:, None] + np.arange(41)
            params, opt_state, loss = train_step(cfg, params, opt_state, text[at])
            losses.append(loss)
        print(f"epoch {epoch}  loss {float(jnp.stack(losses).mean()):.3f}")
    accuracy, (p50, p99) = serve(cfg, params, rng, 1200)
    print(f"served: right {accuracy:.3f}, median {p50:.1f} ms, p99 {p99:.1f} ms")
