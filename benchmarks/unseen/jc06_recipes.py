"""A tiny decoder-only transformer (flax.nnx) trained on arithmetic-progression "recipes", then sampled with a key/value cache."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

VOCAB, DIM, HEADS, LAYERS, CONTEXT = 32, 48, 4, 2, 24


class Attention(nnx.Module):
    def __init__(self, rngs):
        self.qkv = nnx.Linear(DIM, 3 * DIM, use_bias=False, rngs=rngs)
        self.out = nnx.Linear(DIM, DIM, use_bias=False, rngs=rngs)

    def heads(self, x):
        b, t, _ = x.shape
        return jnp.moveaxis(self.qkv(x).reshape(b, t, 3, HEADS, DIM // HEADS), 2, 0)

    def __call__(self, x):
        q, k, v = self.heads(x)
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.reshape(x.shape)), (k, v)

    def extend(self, x, past):
        """x is [batch, 1, DIM]; past the keys and values so far."""
        q, k, v = self.heads(x)
        k = jnp.concatenate([past[0], k], axis=1)
        v = jnp.concatenate([past[1], v], axis=1)
        y = jax.nn.dot_product_attention(q, k, v)
        return self.out(y.reshape(x.shape)), (k, v)


class Block(nnx.Module):
    def __init__(self, rngs):
        self.norm1, self.norm2 = nnx.RMSNorm(DIM, rngs=rngs), nnx.RMSNorm(DIM, rngs=rngs)
        self.attn = Attention(rngs)
        self.up, self.down = nnx.Linear(DIM, 3 * DIM, rngs=rngs), nnx.Linear(3 * DIM, DIM, rngs=rngs)

    def mlp(self, x):
        return x + self.down(jax.nn.gelu(self.up(self.norm2(x))))

    def __call__(self, x):
        y, cache = self.attn(self.norm1(x))
        return self.mlp(x + y), cache

    def extend(self, x, past):
        y, cache = self.attn.extend(self.norm1(x), past)
        return self.mlp(x + y), cache


class Writer(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(VOCAB, DIM, rngs=rngs)
        self.place = nnx.Embed(CONTEXT, DIM, rngs=rngs)
        self.blocks = nnx.List([Block(rngs) for _ in range(LAYERS)])
        self.head = nnx.Linear(DIM, VOCAB, rngs=rngs)

    def __call__(self, tokens):
        x, caches = self.embed(tokens) + self.place(jnp.arange(tokens.shape[1])), []
        for block in self.blocks:
            x, cache = block(x)
            caches.append(cache)
        return self.head(x), caches

    def extend(self, token, position, caches):
        x, new = self.embed(token[:, None]) + self.place(position), []
        for block, past in zip(self.blocks, caches):
            x, cache = block.extend(x, past)
            new.append(cache)
        return self.head(x[:, 0]), new


def recipes(rng, n, length):
    """Token i+1 = token i + stride (mod VOCAB); the stride holds within a line."""
    start, stride = rng.integers(0, VOCAB, (n, 1)), rng.integers(1, 5, (n, 1))
    return ((start + stride * np.arange(length)) % VOCAB).astype(np.int32)


@nnx.jit
def train_step(model, optimizer, tokens):
    def loss_fn(model):
        logits, _ = model(tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits[:, 1:], tokens[:, 2:]).mean()

    loss, grads = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss


@nnx.jit
def prefill(model, prompt):
    logits, caches = model(prompt)
    return logits[:, -1], caches


@nnx.jit
def decode_step(model, token, position, caches, key, temperature):
    logits, caches = model.extend(token, position, caches)
    return jax.random.categorical(key, logits / temperature), caches


def generate(model, prompt, n_new, key, temperature):
    logits, caches = prefill(model, prompt)
    token, out = logits.argmax(-1).astype(jnp.int32), []
    for position in range(prompt.shape[1], prompt.shape[1] + n_new):
        out.append(token)
        key, sub = jax.random.split(key)
        token, caches = decode_step(model, token, jnp.int32(position), caches, sub, temperature)
    return np.asarray(jnp.stack(out, axis=1))


def main():
    rng = np.random.default_rng(0)
    model = Writer(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(4e-3), wrt=nnx.Param)
    for step in range(200):
        loss = train_step(model, optimizer, recipes(rng, 32, CONTEXT))
        if step % 40 == 39:
            print(f"step {step + 1}: loss {float(loss):.4f}")
    lines = recipes(rng, 16, 22)
    for temperature in (0.2, 0.7, 1.2):
        text = generate(model, lines[:, :6], 16, jax.random.key(4), np.float32(temperature))
        print(f"temperature {temperature}: {np.mean(text == lines[:, 6:]):.3f} of the tokens continue the recipe")


if __name__ == "__main__":
    main()
