"""A small character transformer in flax nnx: trains on arithmetic strings, then writes samples."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

CHARS = "\n0123456789+-=;"
CONTEXT = 40
WIDTH, HEADS, LAYERS = 64, 4, 1


def corpus(length, seed=0):
    rng, out, size = np.random.default_rng(seed), [], 0
    while size < length:
        a, b = rng.integers(0, 10, 2)
        text = f"{a}+{b}={a + b};" if rng.random() < 0.5 else f"{a + b}-{b}={a};"
        out.append(text)
        size += len(text)
    return np.array([CHARS.index(c) for c in "".join(out)], np.int32)


class Layer(nnx.Module):
    def __init__(self, rngs):
        self.norm1, self.norm2 = nnx.LayerNorm(WIDTH, rngs=rngs), nnx.LayerNorm(WIDTH, rngs=rngs)
        self.qkv = nnx.Linear(WIDTH, 3 * WIDTH, use_bias=False, rngs=rngs)
        self.out = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.up, self.down = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs), nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        b, t, _ = x.shape
        q, k, v = jnp.split(self.qkv(self.norm1(x)).reshape(b, t, HEADS, -1), 3, axis=-1)
        x = x + self.out(jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, WIDTH))
        return x + self.down(jax.nn.gelu(self.up(self.norm2(x))))


class CharModel(nnx.Module):
    def __init__(self, rngs):
        self.token = nnx.Embed(len(CHARS), WIDTH, rngs=rngs)
        self.place = nnx.Embed(CONTEXT, WIDTH, rngs=rngs)
        self.layers = nnx.List([Layer(rngs) for _ in range(LAYERS)])
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.head = nnx.Linear(WIDTH, len(CHARS), rngs=rngs)

    def __call__(self, ids):
        x = self.token(ids) + self.place(jnp.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


@nnx.jit
def train_step(model, optimizer, ids):
    def loss_fn(m):
        logits = m(ids[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, ids[:, 1:]).mean()

    loss, grads = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss


@nnx.jit
def next_logits(model, ids):
    return model(ids)[:, -1]


def batches(data, size, count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        starts = rng.integers(0, len(data) - CONTEXT - 1, size)
        yield data[starts[:, None] + np.arange(CONTEXT + 1)]


def generate(model, prompts, new_tokens, key, temperature=0.7):
    ids = jnp.asarray(prompts)
    for k in jax.random.split(key, new_tokens):
        logits = next_logits(model, ids)
        token = jax.random.categorical(k, logits / temperature)
        ids = jnp.concatenate([ids, token[:, None].astype(jnp.int32)], axis=1)
    return np.asarray(ids)


def correct_share(rows):
    good = total = 0
    for row in rows:
        for piece in "".join(CHARS[i] for i in row).split(";")[1:-1]:
            left, eq, right = piece.partition("=")
            op = "+" if "+" in left else "-"
            try:
                a, b = (int(v) for v in left.split(op))
                good += (a + b if op == "+" else a - b) == int(right)
            except ValueError:
                pass
            total += 1
    return good / max(total, 1)


def main():
    model = CharModel(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(3e-3), wrt=nnx.Param)
    data = corpus(40_000)
    for epoch in range(3):
        losses = [train_step(model, optimizer, ids) for ids in batches(data, 24, 70, epoch)]
        mean = functools.reduce(lambda a, b: a + float(b), losses, 0.0) / len(losses)
        rows = generate(model, data[:256].reshape(16, 16), CONTEXT - 16, jax.random.key(epoch))
        print(f"epoch {epoch}: loss {mean:.4f}, share of correct sums in samples {correct_share(rows):.2f}")
    print("sample:", "".join(CHARS[i] for i in rows[0]))


if __name__ == "__main__":
    main()
