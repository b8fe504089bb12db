"""Bayesian personalised ranking with sparse row updates on big embedding tables."""
from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Setup:
    users: int = 16_000
    items: int = 8_000
    dim: int = 160
    taste_groups: int = 20
    batch: int = 1024
    steps: int = 800
    lr: float = 0.25
    reg: float = 1e-4
    test_users: int = 200
    k: int = 20


class Interactions:
    """Users like the items of their taste group; popularity inside a group is skewed."""

    def __init__(self, cfg: Setup, seed: int = 0):
        self.cfg, self.rng = cfg, np.random.default_rng(seed)
        self.user_group = self.rng.integers(0, cfg.taste_groups, cfg.users)
        per = cfg.items // cfg.taste_groups
        self.by_group = self.rng.permutation(per * cfg.taste_groups).reshape(cfg.taste_groups, per)
        self.per = per

    def _likes(self, users):
        rank = np.minimum((self.rng.pareto(0.8, len(users)) * 12).astype(int), self.per - 1)
        return self.by_group[self.user_group[users], rank]

    def batch(self):
        users = self.rng.integers(0, self.cfg.users, self.cfg.batch)
        negatives = self.rng.integers(0, self.cfg.items, self.cfg.batch)
        return users.astype(np.int32), self._likes(users).astype(np.int32), negatives.astype(np.int32)

    def test_case(self, user):
        history = np.unique(self._likes(np.full(self.rng.integers(5, 160), user)))
        target = np.setdiff1d(np.unique(self._likes(np.full(60, user))), history)
        return history, target


def init_tables(cfg: Setup, key):
    ku, ki = jax.random.split(key)
    return {"user": 0.1 * jax.random.normal(ku, (cfg.users, cfg.dim)),
            "item": 0.1 * jax.random.normal(ki, (cfg.items, cfg.dim)),
            "bias": jnp.zeros(cfg.items)}


def bpr_loss(rows, reg):
    u, p, n, bp, bn = rows
    margin = jnp.sum(u * (p - n), axis=-1) + bp - bn
    penalty = reg * (jnp.sum(u ** 2) + jnp.sum(p ** 2) + jnp.sum(n ** 2))
    return jnp.sum(jax.nn.softplus(-margin)) + penalty


def make_update(cfg: Setup):
    @jax.jit
    def update(tables, users, pos, neg):
        rows = (tables["user"][users], tables["item"][pos], tables["item"][neg],
                tables["bias"][pos], tables["bias"][neg])
        loss, (gu, gp, gn, gbp, gbn) = jax.value_and_grad(bpr_loss)(rows, cfg.reg)
        ids = jnp.concatenate([pos, neg])
        return {"user": tables["user"].at[users].add(-cfg.lr * gu),
                "item": tables["item"].at[ids].add(-0.5 * cfg.lr * jnp.concatenate([gp, gn])),
                "bias": tables["bias"].at[ids].add(-0.05 * cfg.lr * jnp.concatenate([gbp, gbn]))}, loss / cfg.batch

    return update


def recommend(tables, user, history, k):
    scores = tables["item"] @ tables["user"][user] + tables["bias"]
    scores = scores.at[history].set(-jnp.inf)
    return np.asarray(jax.lax.top_k(scores, k)[1])


def evaluate(tables, data: Interactions, cfg: Setup):
    recall, in_group = [], []
    for user in data.rng.choice(cfg.users, cfg.test_users, replace=False):
        history, target = data.test_case(user)
        if len(target) == 0:
            continue
        top = recommend(tables, user, history, cfg.k)
        recall.append(np.isin(top, target).sum() / min(cfg.k, len(target)))
        in_group.append(np.isin(top, data.by_group[data.user_group[user]]).mean())
    return float(np.mean(recall)), float(np.mean(in_group))


def main():
    cfg = Setup()
    data = Interactions(cfg)
    tables = init_tables(cfg, jax.random.key(1))
    update = make_update(cfg)
    recent = []
    for step in range(1, cfg.steps + 1):
        tables, loss = update(tables, *data.batch())
        recent.append(loss)
        if step % 200 == 0:
            print(f"step {step:5d}  BPR loss {np.mean(jax.device_get(recent)):.4f}")
            recent.clear()
    recall, in_group = evaluate(tables, data, cfg)
    print(f"recall@{cfg.k} {recall:.3f}   share of recommendations in the taste group {in_group:.3f}")


if __name__ == "__main__":
    main()
