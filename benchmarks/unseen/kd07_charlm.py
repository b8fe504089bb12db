"""A small causal transformer (linen) that learns to write arithmetic proofs, then completes held-out prompts."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

VOCAB = "0123456789+-*=;() ?"
STOI = {c: i for i, c in enumerate(VOCAB)}
CTX = 64
DIM, HEADS, DEPTH = 64, 4, 8
PAD = STOI["?"]


def make_line(rng):
    a, b, c = rng.integers(0, 30, 3)
    op = rng.choice(["+", "-", "*"])
    left = {"+": a + b, "-": a - b, "*": a * b}[op]
    return f"({a}{op}{b})+{c}={left}+{c}={left + c};"


def encode(text):
    return np.array([STOI[c] for c in text], np.int32)


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        h = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(HEADS, qkv_features=DIM)(h, h, mask=mask)
        h = nn.LayerNorm()(x)
        return x + nn.Dense(DIM)(nn.gelu(nn.Dense(4 * DIM)(h)))


class Trunk(nn.Module):
    depth: int

    def setup(self):
        self.blocks = [Block() for _ in range(self.depth)]

    def __call__(self, x, mask):
        for block in self.blocks:
            x = block(x, mask)
        return x


class Writer(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        t = tokens.shape[1]
        pos = self.param("pos", nn.initializers.normal(0.02), (CTX, DIM))
        x = nn.Embed(len(VOCAB), DIM)(tokens) + pos[:t]
        x = Trunk(DEPTH)(x, nn.make_causal_mask(tokens))
        return nn.Dense(len(VOCAB))(nn.LayerNorm()(x))


model = Writer()
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(2e-3))


@functools.partial(jax.jit, donate_argnums=(0, 1))
def train_step(params, opt_state, tokens):
    def loss_fn(p):
        logits = model.apply(p, tokens[:, :-1])
        ce = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
        keep = tokens[:, 1:] != PAD
        return (ce * keep).sum() / keep.sum()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


class Completer:
    """Writes until ';' from the weights that it was given."""

    def __init__(self, params):
        def next_token(buffer, n, key, temperature):
            # distribution after the n tokens written so far; the buffer always has CTX places
            logits = model.apply(params, buffer[None])[0, n - 1]
            return jax.random.categorical(key, logits / temperature)

        self.next_token = jax.jit(next_token)

    def complete(self, prompt, key, temperature=0.7, budget=30):
        buffer = np.full(CTX, PAD, np.int32)
        ids = encode(prompt)
        buffer[:len(ids)] = ids
        n = len(ids)
        while n < min(CTX, len(ids) + budget):
            key, sub = jax.random.split(key)
            tok = int(self.next_token(jnp.asarray(buffer), n, sub, temperature))
            buffer[n] = tok
            n += 1
            if VOCAB[tok] == ";":
                break
        return "".join(VOCAB[i] for i in buffer[:n])


def exam(params, seed, n_lines, show=0):
    """Exact completions of held-out equations."""
    rng = np.random.default_rng(seed)
    writer = Completer(params)
    right = 0
    for k in range(n_lines):
        line = make_line(rng)
        prompt = line[:line.index("=") + 1]
        text = writer.complete(prompt, jax.random.key(k))
        right += text == line
        if k < show:
            print("  ", prompt, "->", text)
    return right / n_lines


def main():
    rng = np.random.default_rng(0)
    lines = [make_line(rng) for _ in range(6000)]
    stream = encode("".join(lines))
    params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, CTX), jnp.int32))
    opt_state = tx.init(params)
    losses = []
    for it in range(60):
        start = rng.integers(0, len(stream) - CTX - 1, 24)
        batch = stream[start[:, None] + np.arange(CTX + 1)]
        params, opt_state, loss = train_step(params, opt_state, batch)
        losses.append(loss)
        if it % 4 == 3:
            mean = float(jnp.stack(losses[-4:]).mean())
            print(f"step {it + 1}: loss {mean:.3f} exact {exam(params, 7, 3):.2f}")

    print(f"exact lines: {exam(params, 99, 20, show=3):.2f}")


if __name__ == "__main__":
    main()
