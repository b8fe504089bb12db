"""Small linen language model over a toy chemical grammar, with cached sampling for a validity score."""
import dataclasses
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import flax.linen as nn
from flax.training import train_state

VOCAB = ["<pad>", "<bos>", "<eos>", "C", "N", "O", "(", ")", "=", "1"]
STOI = {s: i for i, s in enumerate(VOCAB)}


@dataclasses.dataclass(frozen=True)
class Config:
    max_len: int = 24
    width: int = 48
    heads: int = 4
    layers: int = 1
    batch: int = 32
    steps: int = 150
    sample_every: int = 30
    samples: int = 16
    temperature: float = 0.9


def random_molecule(rng, depth=0):
    out = [rng.choice(["C", "N", "O"])]
    for _ in range(rng.integers(1, 6)):
        if depth < 2 and rng.random() < 0.25:
            out += ["("] + random_molecule(rng, depth + 1) + [")"]
        elif rng.random() < 0.2:
            out += ["=", rng.choice(["C", "O"])]
        out.append(rng.choice(["C", "N", "O"]))
    return out


def corpus(count, max_len, seed):
    rng = np.random.default_rng(seed)
    rows = np.zeros((count, max_len + 1), np.int32)
    for row in rows:
        tokens = ["<bos>"] + random_molecule(rng)[: max_len - 1] + ["<eos>"]
        row[: len(tokens)] = [STOI[t] for t in tokens]
    return rows


def is_valid(tokens):
    level = 0
    for t in tokens:
        level += {"(": 1, ")": -1}.get(t, 0)
        if level < 0:
            return False
    return level == 0 and bool(tokens) and tokens[-1] not in ("=", "(")


class Attention(nn.Module):
    cfg: Config

    @nn.compact
    def __call__(self, x, pos, decode):
        c = self.cfg
        split = lambda t: t.reshape(*t.shape[:2], c.heads, -1)
        q, k, v = (split(nn.Dense(c.width, name=n)(x)) for n in ("q", "k", "v"))
        if decode:
            shape = (x.shape[0], c.max_len, c.heads, c.width // c.heads)
            cached_k = self.variable("cache", "past_k", jnp.zeros, shape)
            cached_v = self.variable("cache", "past_v", jnp.zeros, shape)
            cached_k.value = cached_k.value.at[:, pos].set(k[:, 0])
            cached_v.value = cached_v.value.at[:, pos].set(v[:, 0])
            k, v = cached_k.value, cached_v.value
            mask = (jnp.arange(c.max_len) <= pos)[None, None, None]
        else:
            mask = nn.make_causal_mask(x[..., 0])
        out = nn.dot_product_attention(q, k, v, mask=mask)
        return nn.Dense(c.width, name="o")(out.reshape(x.shape))


class SmilesLM(nn.Module):
    cfg: Config

    @nn.compact
    def __call__(self, tokens, pos=0, decode=False):
        c = self.cfg
        table = self.param("pos", nn.initializers.normal(0.02), (c.max_len, c.width))
        where = jnp.array([pos]) if decode else jnp.arange(tokens.shape[1])
        h = nn.Embed(len(VOCAB), c.width)(tokens) + table[where]
        for _ in range(c.layers):
            h = h + Attention(c)(nn.LayerNorm()(h), pos, decode)
            m = nn.gelu(nn.Dense(4 * c.width)(nn.LayerNorm()(h)))
            h = h + nn.Dense(c.width)(m)
        return nn.Dense(len(VOCAB))(nn.LayerNorm()(h))


@functools.partial(jax.jit, donate_argnums=0)
def train_step(state, rows):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, rows[:, :-1])
        ce = optax.softmax_cross_entropy_with_integer_labels(logits, rows[:, 1:])
        mask = rows[:, 1:] > 0
        return jnp.sum(ce * mask) / jnp.sum(mask)

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


class Sampler:
    def __init__(self, model, cfg):
        self.model, self.cfg = model, cfg
        self.step = jax.jit(self._step, static_argnames=("pos",))

    def _step(self, params, cache, token, pos):
        logits, mutated = self.model.apply(
            {"params": params, "cache": cache}, token[:, None], pos=pos, decode=True, mutable=["cache"])
        return logits[:, 0], mutated["cache"]

    def draw_token(self, logits, key):
        logits = logits / self.cfg.temperature
        best, _ = jax.lax.top_k(logits, 6)
        logits = jnp.where(logits < best[:, -1:], -1e9, logits)
        return jax.random.categorical(key, logits)

    def __call__(self, params, key):
        cfg = self.cfg
        shape = (cfg.samples, cfg.max_len, cfg.heads, cfg.width // cfg.heads)
        cache = {f"Attention_{i}": {"past_k": jnp.zeros(shape), "past_v": jnp.zeros(shape)} for i in range(cfg.layers)}
        token = jnp.full((cfg.samples,), STOI["<bos>"])
        drawn = []
        for pos in range(cfg.max_len):
            logits, cache = self.step(params, cache, token, pos=pos)
            key, sub = jax.random.split(key)
            token = self.draw_token(logits, sub)
            drawn.append(token)
        texts = []
        for ids in np.stack(jax.device_get(drawn), axis=1):
            stop = np.argmax(ids == STOI["<eos>"]) if (ids == STOI["<eos>"]).any() else len(ids)
            texts.append([VOCAB[i] for i in ids[:stop]])
        return texts


def main():
    cfg = Config()
    rng = np.random.default_rng(0)
    rows = corpus(2000, cfg.max_len, 1)
    model = SmilesLM(cfg)
    params = model.init(jax.random.key(0), jnp.zeros((1, cfg.max_len), jnp.int32))["params"]
    tx = optax.adamw(optax.linear_schedule(3e-3, 3e-4, cfg.steps))
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx)
    sampler = Sampler(model, cfg)
    start = time.perf_counter()
    for step in range(1, cfg.steps + 1):
        state, loss = train_step(state, rows[rng.integers(0, len(rows), cfg.batch)])
        if step % cfg.sample_every == 0:
            texts = sampler(state.params, jax.random.key(step))
            valid = np.mean([is_valid(t) for t in texts])
            print(f"step {step} loss {float(loss):.3f} valid {valid:.2f} e.g. {''.join(texts[0])} "
                  f"{time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
