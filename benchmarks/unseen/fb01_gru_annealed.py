"""Sequence labelling with an Equinox GRU: which of two interleaved grammars produced a string of symbols?

The auxiliary loss is softened by a temperature which is annealed while training, dropout is ramped up.
"""
import argparse
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

VOCAB = 24


def make_grammar(rng, sharpness):
    logits = rng.normal(size=(VOCAB, VOCAB)) * sharpness
    p = np.exp(logits)
    return p / p.sum(1, keepdims=True)


def sample_strings(rng, table, n, length):
    cdf = table.cumsum(1)
    out = np.zeros((n, length), np.int32)
    out[:, 0] = rng.integers(0, VOCAB, n)
    for t in range(1, length):
        u = rng.random(n)[:, None]
        out[:, t] = np.minimum((cdf[out[:, t - 1]] < u).sum(1), VOCAB - 1)
    return out


class Tagger(eqx.Module):
    embed: eqx.nn.Embedding
    cell: eqx.nn.GRUCell
    head: eqx.nn.MLP
    nxt: eqx.nn.Linear
    hidden: int = eqx.field(static=True)

    def __init__(self, hidden, key):
        k1, k2, k3, k4 = jax.random.split(key, 4)
        self.embed = eqx.nn.Embedding(VOCAB, 32, key=k1)
        self.cell = eqx.nn.GRUCell(32, hidden, key=k2)
        self.head = eqx.nn.MLP(hidden, 2, 64, 2, key=k3)
        self.nxt = eqx.nn.Linear(hidden, VOCAB, key=k4)
        self.hidden = hidden

    def __call__(self, tokens, key, dropout):
        xs = jax.vmap(self.embed)(tokens)

        def body(h, x):
            h = self.cell(x, h)
            return h, h

        last, hs = jax.lax.scan(body, jnp.zeros(self.hidden), xs)
        keep = jax.random.bernoulli(key, 1.0 - dropout, last.shape)
        last = jnp.where(keep, last / (1.0 - dropout), 0.0)
        return self.head(last), jax.vmap(self.nxt)(hs[:-1])


def loss_fn(model, tokens, labels, key, temperature, dropout):
    keys = jax.random.split(key, tokens.shape[0])
    logits, nxt = jax.vmap(model, in_axes=(0, 0, None))(tokens, keys, dropout)
    cls = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    lm = optax.softmax_cross_entropy_with_integer_labels(nxt / temperature, tokens[:, 1:]).mean()
    return cls + 0.3 * lm, cls


@eqx.filter_jit
def train_step(model, opt_state, optimizer, tokens, labels, key, temperature, dropout):
    (loss, cls), grads = eqx.filter_value_and_grad(loss_fn, has_aux=True)(
        model, tokens, labels, key, temperature, dropout)
    updates, opt_state = optimizer.update(grads, opt_state, eqx.filter(model, eqx.is_array))
    return eqx.apply_updates(model, updates), opt_state, loss, cls


@eqx.filter_jit
def accuracy(model, tokens, labels):
    keys = jax.random.split(jax.random.key(0), tokens.shape[0])
    logits, _ = jax.vmap(model, in_axes=(0, 0, None))(tokens, keys, 0.0)
    return (logits.argmax(-1) == labels).mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=240)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--length", type=int, default=40)
    ap.add_argument("--hidden", type=int, default=48)
    args = ap.parse_args()

    rng = np.random.default_rng(3)
    tables = [make_grammar(rng, 0.5), make_grammar(rng, 0.5)]
    strings = np.concatenate([sample_strings(rng, t, 1500, args.length) for t in tables])
    labels = np.repeat(np.arange(2, dtype=np.int32), 1500)
    order = rng.permutation(len(labels))
    strings, labels = strings[order], labels[order]
    train, test = slice(0, 2600), slice(2600, None)

    model = Tagger(args.hidden, jax.random.key(1))
    optimizer = optax.adam(3e-3)
    opt_state = optimizer.init(eqx.filter(model, eqx.is_array))
    key = jax.random.key(2)
    start = time.time()
    for step in range(args.steps):
        temperature = 1.0 + 2.0 * 0.8 ** (step // 20)
        dropout = min(0.2, 0.002 * step)
        idx = rng.integers(0, train.stop, args.batch)
        key, sub = jax.random.split(key)
        model, opt_state, loss, cls = train_step(
            model, opt_state, optimizer, strings[idx], labels[idx], sub, temperature, jnp.float32(dropout))
        if step % 60 == 59:
            acc = accuracy(model, strings[test], labels[test])
            print(f"step {step + 1:4d} loss {loss:.3f} cls {cls:.3f} T {temperature:.2f} test acc {acc:.3f}")
    print(f"trained in {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
