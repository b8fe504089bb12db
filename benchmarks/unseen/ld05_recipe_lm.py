"""A small word-level transformer language model on generated recipes of varying length (flax linen + optax).

Sentences are sorted into three length buckets and padded to the bucket's size.
"""
import math
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training import train_state

VERBS = "chop stir fry boil mix add bake roast fold whisk".split()
FOODS = "onion garlic rice carrot flour butter egg basil lentil salmon pepper lemon".split()
MANNER = "gently quickly well slowly".split()
GLUE = "then and with for minutes until soft golden the . <pad> <bos>".split()
VOCAB = {w: i for i, w in enumerate(GLUE + VERBS + FOODS + MANNER + [str(k) for k in range(1, 31)])}
PAD, BOS = VOCAB["<pad>"], VOCAB["<bos>"]
BUCKETS = (16, 32, 64)
BATCH = 32


def recipe(rng):
    words = ["<bos>"]
    for i in range(rng.integers(1, 8)):
        if i:
            words.append(rng.choice(["then", "and"]))
        words += [rng.choice(VERBS), "the", rng.choice(FOODS)]
        if rng.random() < 0.4:
            words.append(rng.choice(MANNER))
        if rng.random() < 0.4:
            words += ["for", str(rng.integers(1, 31)), "minutes"]
        elif rng.random() < 0.3:
            words += ["until", rng.choice(["soft", "golden"])]
    return [VOCAB[w] for w in words + ["."]]


class BucketedCorpus:
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        groups = {b: [] for b in BUCKETS}
        for _ in range(n):
            ids = recipe(rng)[: BUCKETS[-1] + 1]
            size = next(b for b in BUCKETS if len(ids) <= b + 1)
            groups[size].append(ids + [PAD] * (size + 1 - len(ids)))
        self.arrays = {b: np.asarray(g, np.int32) for b, g in groups.items() if len(g) >= BATCH}

    def batches(self, rng):
        plan = [(b, i) for b, a in self.arrays.items() for i in range(len(a) // BATCH)]
        order = {b: rng.permutation(len(a)) for b, a in self.arrays.items()}
        for k in rng.permutation(len(plan)):
            b, i = plan[k]
            yield self.arrays[b][order[b][i * BATCH : (i + 1) * BATCH]]


class Block(nn.Module):
    width: int
    heads: int

    @nn.compact
    def __call__(self, h, mask, train):
        a = nn.LayerNorm()(h)
        a = nn.MultiHeadDotProductAttention(self.heads, dropout_rate=0.1, deterministic=not train)(a, a, mask=mask)
        h = h + a
        m = nn.Dense(4 * self.width)(nn.LayerNorm()(h))
        m = nn.Dense(self.width)(nn.gelu(m))
        return h + nn.Dropout(0.1, deterministic=not train)(m)


class RecipeLM(nn.Module):
    width: int = 96
    depth: int = 3
    heads: int = 4

    @nn.compact
    def __call__(self, tokens, train=False):
        table = nn.Embed(len(VOCAB), self.width)
        place = self.param("place", nn.initializers.normal(0.02), (BUCKETS[-1], self.width))
        h = table(tokens) + place[: tokens.shape[1]]
        mask = nn.combine_masks(nn.make_causal_mask(tokens), nn.make_attention_mask(tokens != PAD, tokens != PAD))
        for _ in range(self.depth):
            h = Block(self.width, self.heads)(h, mask, train)
        return table.attend(nn.LayerNorm()(h))


def token_loss(logits, targets):
    keep = targets != PAD
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, targets) * keep
    return nll.sum(), keep.sum()


@partial(jax.jit, donate_argnums=(0, 1))
def train_step(state, totals, batch, key):
    def loss_fn(params):
        rng = jax.random.fold_in(key, state.step)
        logits = state.apply_fn(params, batch[:, :-1], train=True, rngs={"dropout": rng})
        total, count = token_loss(logits, batch[:, 1:])
        return total / count, (total, count)

    grads, (total, count) = jax.grad(loss_fn, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads), (totals[0] + total, totals[1] + count)


@jax.jit
def eval_step(state, totals, batch):
    total, count = token_loss(state.apply_fn(state.params, batch[:, :-1]), batch[:, 1:])
    return totals[0] + total, totals[1] + count


def fresh_totals():
    return jnp.zeros(()), jnp.zeros((), jnp.int32)


def perplexity(totals):
    total, count = jax.device_get(totals)
    return math.exp(total / count)


def main(epochs=3):
    train, valid = BucketedCorpus(3200, seed=0), BucketedCorpus(640, seed=1)
    print({b: len(a) for b, a in train.arrays.items()})
    model = RecipeLM()
    params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, BUCKETS[-1]), jnp.int32))
    steps = epochs * sum(len(a) // BATCH for a in train.arrays.values())
    tx = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 2e-3, steps // 10, steps))
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx)
    rng, key = np.random.default_rng(0), jax.random.key(1)
    begin = time.time()
    for epoch in range(epochs):
        totals = fresh_totals()
        for batch in train.batches(rng):
            state, totals = train_step(state, totals, batch, key)
        held_out = fresh_totals()
        for batch in valid.batches(rng):
            held_out = eval_step(state, held_out, batch)
        print(f"epoch {epoch}  ppl {perplexity(totals):.2f}  valid {perplexity(held_out):.2f}  {time.time() - begin:.1f}s")


if __name__ == "__main__":
    main()
