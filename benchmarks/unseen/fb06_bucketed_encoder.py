"""Sentiment of product reviews with a small transformer encoder in Flax linen; lengths are bucketed."""
import time
from collections import defaultdict

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state

VOCAB, DIM, HEADS, LAYERS = 500, 64, 4, 1
BUCKETS = (16, 32, 64)
BATCH = 32
EPOCHS = 3


def reviews(n, seed):
    """Words 1..19 are nice, 20..39 are nasty, 40 negates the next word; the rest is filling."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(n):
        length = int(np.clip(rng.lognormal(3.1, 0.5), 6, 64))
        words = rng.integers(41, VOCAB, length)
        good = rng.random() < 0.5
        for pos in rng.choice(length - 1, size=max(2, length // 7), replace=False):
            nice = good if rng.random() < 0.85 else not good
            words[pos] = rng.integers(1, 20) if nice else rng.integers(20, 40)
        out.append((words.astype(np.int32), int(good)))
    return out


def bucketed(data, rng):
    """Whole batches of one padded width; what is left over of a bucket is filled up with weight 0."""
    groups = defaultdict(list)
    for words, label in data:
        width = next(b for b in BUCKETS if len(words) <= b)
        groups[width].append((words, label))
    batches = []
    for width, items in groups.items():
        order = rng.permutation(len(items))
        for lo in range(0, len(items), BATCH):
            take = [items[i] for i in order[lo:lo + BATCH]]
            tokens = np.zeros((BATCH, width), np.int32)
            labels, weight = np.zeros(BATCH, np.int32), np.zeros(BATCH, np.float32)
            for row, (words, label) in enumerate(take):
                tokens[row, :len(words)] = words
                labels[row], weight[row] = label, 1.0
            batches.append((tokens, labels, weight))
    return [batches[i] for i in rng.permutation(len(batches))]


class Encoder(nn.Module):
    @nn.compact
    def __call__(self, tokens, train):
        mask = tokens > 0
        x = nn.Embed(VOCAB, DIM)(tokens) + nn.Embed(max(BUCKETS), DIM)(jnp.arange(tokens.shape[1]))
        for _ in range(LAYERS):
            h = nn.LayerNorm()(x)
            h = nn.MultiHeadDotProductAttention(num_heads=HEADS)(h, mask=mask[:, None, None, :])
            x = x + nn.Dropout(0.1, deterministic=not train)(h)
            h = nn.Dense(4 * DIM)(nn.LayerNorm()(x))
            x = x + nn.Dense(DIM)(nn.gelu(h))
        pooled = (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True).clip(1)
        return nn.Dense(2)(pooled)


@jax.jit
def train_step(state, key, tokens, labels, weight):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, tokens, True, rngs={"dropout": jax.random.fold_in(key, state.step)})
        ce = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return (ce * weight).sum() / weight.sum()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


@jax.jit
def hits(state, tokens, labels, weight):
    logits = state.apply_fn({"params": state.params}, tokens, False)
    return ((logits.argmax(-1) == labels) * weight).sum(), weight.sum()


def main():
    rng = np.random.default_rng(0)
    train, test = reviews(2600, 1), reviews(600, 2)
    model = Encoder()
    params = model.init(jax.random.key(0), jnp.zeros((2, BUCKETS[0]), jnp.int32), False)["params"]
    schedule = optax.warmup_cosine_decay_schedule(0.0, 2e-3, 40, 85 * EPOCHS)
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(schedule))
    state = state.replace(step=jnp.int32(0))
    key = jax.random.key(7)
    test_batches = bucketed(test, np.random.default_rng(5))
    for epoch in range(EPOCHS):
        tic, losses = time.perf_counter(), []
        batches = bucketed(train, rng)
        for tokens, labels, weight in batches:
            state, loss = train_step(state, key, tokens, labels, weight)
            losses.append(loss)
        jax.block_until_ready(state.params)
        spent = time.perf_counter() - tic
        mean = float(np.mean(jax.device_get(losses)))
        counts = [hits(state, *b) for b in test_batches]
        right, total = np.array(jax.device_get(counts)).sum(0)
        print(f"epoch {epoch + 1}: loss {mean:.3f}  test accuracy {right / total:.3f}  "
              f"{len(batches) / spent:.1f} steps/s, lr {float(schedule(state.step)):.1e}")


if __name__ == "__main__":
    main()
