"""Next-item recommendation from play histories: a small causal attention model, sampled softmax
with popularity negatives, recall@20 on the last play of every user (Flax NNX)."""
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

N_ITEMS, N_USERS, MAX_LEN = 12000, 1280, 20
DIM, HEADS, N_NEG = 32, 2, 48
BATCH, EPOCHS = 64, 3


def play_logs(rng):
    """Users walk inside of a few genres; the popularity of items is heavy-tailed."""
    genre = rng.integers(0, 40, N_ITEMS)
    pop = 1.0 / (np.arange(N_ITEMS) + 20.0) ** 0.8
    members = [np.flatnonzero(genre == g) for g in range(40)]
    tables = [np.cumsum(pop[m]) / pop[m].sum() for m in members]
    logs = []
    for _ in range(N_USERS):
        n = int(np.clip(rng.lognormal(2.6, 0.25), 6, MAX_LEN + 1))
        g = rng.choice(40, 2, replace=False)[(rng.random(n) < 0.3).astype(int)]
        logs.append(np.array([members[k][np.searchsorted(tables[k], u)] for k, u in zip(g, rng.random(n))]) + 1)
    return logs, pop / pop.sum()


class Block(nnx.Module):
    def __init__(self, rngs):
        self.norm1, self.norm2 = nnx.LayerNorm(DIM, rngs=rngs), nnx.LayerNorm(DIM, rngs=rngs)
        self.attn = nnx.MultiHeadAttention(HEADS, DIM, decode=False, rngs=rngs)
        self.up, self.down = nnx.Linear(DIM, 2 * DIM, rngs=rngs), nnx.Linear(2 * DIM, DIM, rngs=rngs)

    def __call__(self, x, mask):
        x = x + self.attn(self.norm1(x), mask=mask)
        return x + self.down(nnx.gelu(self.up(self.norm2(x))))


class Recommender(nnx.Module):
    def __init__(self, rngs):
        self.items = nnx.Embed(N_ITEMS + 1, DIM, embedding_init=nnx.initializers.normal(0.1), rngs=rngs)
        self.ages = nnx.Embed(MAX_LEN, DIM, embedding_init=nnx.initializers.normal(0.1), rngs=rngs)
        self.blocks = nnx.List([Block(rngs)])
        self.norm = nnx.LayerNorm(DIM, rngs=rngs)

    def __call__(self, history):
        length = history.shape[1]
        age = jnp.arange(length - 1, -1, -1)
        x = self.items(history) + self.ages(age)
        mask = jnp.tril(jnp.ones((length, length), bool)) & (history > 0)[:, None, None, :]
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x)


def sampled_softmax(model, history, target, negatives, log_q):
    h = model(history)
    table = model.items.embedding[...]
    pos = jnp.einsum("bld,bld->bl", h, table[target]) - log_q[target]
    neg = jnp.einsum("bld,bnd->bln", h, table[negatives]) - log_q[negatives][:, None, :]
    nll = jax.nn.logsumexp(jnp.concatenate([pos[..., None], neg], -1), -1) - pos
    valid = (target > 0) & (history > 0)
    return jnp.sum(nll * valid) / jnp.sum(valid)


@nnx.jit
def train_step(model, optimizer, history, target, negatives, log_q):
    loss, grads = nnx.value_and_grad(sampled_softmax)(model, history, target, negatives, log_q)
    optimizer.update(model, grads)
    return loss


@nnx.jit
def rank_of_target(model, history, target):
    scores = model(history)[:, -1] @ model.items.embedding[...].T
    own = jnp.take_along_axis(scores, target[:, None], 1)
    return jnp.sum(scores[:, 1:] > own, axis=1)


class Batches:
    """Left-padded histories, the targets one play later, and negatives for every user."""

    def __init__(self, logs, pop, rng):
        self.logs, self.pop, self.rng = logs, pop, rng

    def __iter__(self):
        order = self.rng.permutation(len(self.logs))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            rows = [self.logs[u] for u in order[start:start + BATCH]]
            width = max(len(r) for r in rows) - 2
            history, target = np.zeros((2, BATCH, width), np.int32)
            negatives = np.empty((BATCH, N_NEG), np.int32)
            for i, r in enumerate(rows):
                history[i, width - len(r) + 2:] = r[:-2]
                target[i, width - len(r) + 2:] = r[1:-1]
                unplayed = np.setdiff1d(np.arange(N_ITEMS), r - 1)
                weight = self.pop[unplayed]
                negatives[i] = 1 + self.rng.choice(unplayed, N_NEG, p=weight / weight.sum())
            yield history, target, negatives


def recall_at_20(model, logs):
    hits = 0
    for start in range(0, len(logs), 320):
        part = logs[start:start + 320]
        history = np.stack([np.pad(r[:-1], (MAX_LEN + 1 - len(r), 0)) for r in part])
        hits += int(np.sum(np.asarray(rank_of_target(model, history, np.array([r[-1] for r in part]))) < 20))
    return hits / len(logs)


rng = np.random.default_rng(11)
logs, pop = play_logs(rng)
log_q = jnp.log(jnp.concatenate([jnp.ones(1), jnp.asarray(pop, jnp.float32)]))
model = Recommender(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adamw(4e-3, weight_decay=1e-2), wrt=nnx.Param)
batches = Batches(logs, pop, rng)
for epoch in range(EPOCHS):
    t0 = time.perf_counter()
    losses = [train_step(model, optimizer, h, t, n, log_q) for h, t, n in batches]
    mean = float(jnp.mean(jnp.stack(losses)))
    print(f"epoch {epoch}: loss {mean:.3f}, {time.perf_counter() - t0:.1f} s, recall@20 {recall_at_20(model, logs):.4f}")
