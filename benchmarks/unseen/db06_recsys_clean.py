"""Two-tower recommender with in-batch softmax; trained on click logs, evaluated by recall@50.

Histories are padded to one of three lengths so that long users do not slow everybody down.
"""
import time
from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

BUCKETS = (8, 16, 32)


@dataclass
class Config:
    users: int = 12000
    items: int = 3000
    dim: int = 64
    batch: int = 256
    epochs: int = 4
    buckets: tuple = field(default=BUCKETS)


def click_logs(cfg, rng):
    """Every user has a taste over 40 genres; items belong to one genre each."""
    genre = rng.integers(0, 40, cfg.items)
    by_genre = [np.flatnonzero(genre == g) for g in range(40)]
    logs = []
    for _ in range(cfg.users):
        tastes = rng.integers(0, 40, 2)
        n = int(np.clip(rng.gamma(2.0, 6.0), 4, 32)) + 1
        picks = [rng.choice(by_genre[tastes[j]]) for j in rng.integers(0, 2, n)]
        logs.append(np.array(picks, np.int32) + 1)
    return logs


class Towers(nn.Module):
    items: int
    dim: int

    def setup(self):
        self.table = nn.Embed(self.items + 1, self.dim)
        self.score = nn.Dense(1)
        self.mlp = nn.Sequential([nn.Dense(2 * self.dim), nn.gelu, nn.Dense(self.dim)])

    def user(self, history):
        e = self.table(history)
        w = jnp.where(history[..., None] > 0, self.score(e), -1e9)
        pooled = jnp.sum(jax.nn.softmax(w, axis=1) * e, axis=1)
        return pooled + self.mlp(pooled)

    def __call__(self, history, target):
        return self.user(history), self.table(target)


def bucketed(logs, cfg, rng):
    """Yield (history, target) batches; every batch has the width of one bucket."""
    lengths = np.array([len(x) - 1 for x in logs])
    plan = []
    for lo, hi in zip((0,) + cfg.buckets, cfg.buckets):
        ids = rng.permutation(np.flatnonzero((lengths > lo) & (lengths <= hi)))
        plan += [(hi, ids[i : i + cfg.batch]) for i in range(0, len(ids) - cfg.batch + 1, cfg.batch)]
    for j in rng.permutation(len(plan)):
        width, ids = plan[j]
        hist = np.zeros((cfg.batch, width), np.int32)
        for row, u in enumerate(ids):
            hist[row, : lengths[u]] = logs[u][:-1]
        yield hist, np.array([logs[u][-1] for u in ids], np.int32)


def make_steps(model, tx):
    def loss_fn(params, hist, target):
        u, v = model.apply(params, hist, target)
        logits = u @ v.T / jnp.sqrt(u.shape[-1])
        same = (target[:, None] == target[None]) & ~jnp.eye(len(target), dtype=bool)
        logits = jnp.where(same, -1e9, logits)
        return optax.softmax_cross_entropy_with_integer_labels(logits, jnp.arange(len(target))).mean()

    @partial(jax.jit, donate_argnums=(0, 1))
    def train(params, opt, hist, target):
        loss, grads = jax.value_and_grad(loss_fn)(params, hist, target)
        upd, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, upd), opt, loss

    @jax.jit
    def recall(params, hist, target):
        u = model.apply(params, hist, method="user")
        scores = u @ params["params"]["table"]["embedding"].T
        top = jax.lax.top_k(scores.at[:, 0].set(-jnp.inf), 50)[1]
        return jnp.mean(jnp.any(top == target[:, None], axis=1))

    return train, recall


def main():
    cfg = Config()
    rng = np.random.default_rng(0)
    logs = click_logs(cfg, rng)
    held, logs = logs[:2500], logs[2500:]
    model = Towers(cfg.items, cfg.dim)
    params = model.init(jax.random.key(0), np.zeros((1, 8), np.int32), np.zeros(1, np.int32))
    tx = optax.adam(3e-3)
    opt = tx.init(params)
    train, recall = make_steps(model, tx)
    for epoch in range(cfg.epochs):
        start, losses = time.perf_counter(), []
        for hist, target in bucketed(logs, cfg, rng):
            params, opt, loss = train(params, opt, hist, target)
            losses.append(loss)
        mean_loss = float(jnp.stack(losses).mean())
        hits = [recall(params, h, t) for h, t in bucketed(held, cfg, np.random.default_rng(9))]
        jax.block_until_ready(hits)
        took = time.perf_counter() - start
        print(f"epoch {epoch}: loss {mean_loss:.3f}  recall@50 {float(np.mean(hits)):.3f}  {took:.1f} s")


if __name__ == "__main__":
    main()
