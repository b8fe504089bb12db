"""Character language model with a GRU (flax linen) on synthetic Markov text.

Documents have very different lengths; batches are padded to the longest document.
"""
import argparse
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state

VOCAB = 40


def make_corpus(n_docs, seed):
    rng = np.random.default_rng(seed)
    trans = rng.dirichlet(np.full(VOCAB, 0.08), size=VOCAB)
    cum = trans.cumsum(axis=1)
    docs = []
    for _ in range(n_docs):
        length = int(np.clip(rng.gamma(6.0, 11.0), 12, 150))
        doc = np.empty(length, np.int32)
        doc[0] = rng.integers(1, VOCAB)
        u = rng.random(length)
        for i in range(1, length):
            doc[i] = min(np.searchsorted(cum[doc[i - 1]], u[i]), VOCAB - 1)
        docs.append(doc)
    return docs


class CharGRU(nn.Module):
    hidden: int = 96
    embed: int = 48

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(VOCAB, self.embed)(tokens)
        x = nn.RNN(nn.GRUCell(self.hidden))(x)
        x = nn.LayerNorm()(x)
        x = nn.relu(nn.Dense(self.hidden)(x))
        return nn.Dense(VOCAB)(x)


def collate(docs):
    """Pad a list of documents into (tokens, mask)."""
    longest = max(len(d) for d in docs)
    tokens = np.zeros((len(docs), longest), np.int32)
    mask = np.zeros((len(docs), longest), np.float32)
    for i, d in enumerate(docs):
        tokens[i, : len(d)] = d
        mask[i, : len(d)] = 1.0
    return tokens, mask


def batches(docs, size, rng=None):
    order = np.arange(len(docs)) if rng is None else rng.permutation(len(docs))
    for lo in range(0, len(order) - size + 1, size):
        yield collate([docs[i] for i in order[lo : lo + size]])


def loss_fn(params, apply_fn, tokens, mask):
    logits = apply_fn({"params": params}, tokens[:, :-1])
    ce = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
    m = mask[:, 1:]
    return jnp.sum(ce * m) / jnp.sum(m)


@jax.jit
def train_step(state, tokens, mask):
    loss, grads = jax.value_and_grad(loss_fn)(state.params, state.apply_fn, tokens, mask)
    return state.apply_gradients(grads=grads), loss


@jax.jit
def eval_step(state, tokens, mask):
    return loss_fn(state.params, state.apply_fn, tokens, mask)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--docs", type=int, default=176)
    args = ap.parse_args()

    train, valid = make_corpus(args.docs + 32, 0)[:-32], make_corpus(args.docs + 32, 0)[-32:]
    model = CharGRU()
    params = model.init(jax.random.key(0), jnp.zeros((1, 8), jnp.int32))["params"]
    steps = args.epochs * (len(train) // args.batch)
    tx = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(optax.cosine_decay_schedule(4e-3, steps), weight_decay=1e-4),
    )
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx)

    rng = np.random.default_rng(1)
    for epoch in range(args.epochs):
        start = time.perf_counter()
        total, n = 0.0, 0
        for tokens, mask in batches(train, args.batch, rng):
            state, loss = train_step(state, tokens, mask)
            total = total + loss
            n += 1
        val = [eval_step(state, t, m) for t, m in batches(valid, args.batch)]
        val = float(jnp.mean(jnp.stack(val)))
        print(
            f"epoch {epoch}: train {float(total) / n:.3f}  valid {val:.3f}  "
            f"ppl {np.exp(val):.2f}  ({time.perf_counter() - start:.1f} s)"
        )


if __name__ == "__main__":
    main()
