"""Credit scoring on tabular data: repeated k-fold cross-validation of a small residual MLP."""
import argparse
import functools
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state


def make_table(n, seed=3):
    rng = np.random.default_rng(seed)
    income = rng.lognormal(10, 0.6, n)
    age = rng.integers(19, 75, n)
    debts = rng.gamma(2.0, 4000, n)
    history = rng.poisson(1.5, (n, 12))
    region = rng.integers(0, 8, n)
    logit = 1.5 * (debts / income) - 0.02 * (age - 40) + 0.25 * history[:, :4].sum(1) - 2
    y = (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(np.int32)
    x = np.concatenate([np.stack([np.log(income), age / 50, np.log1p(debts)], 1), history,
                        np.eye(8)[region]], 1)
    return x.astype(np.float32), y


class Block(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x, train):
        h = nn.LayerNorm()(x)
        h = nn.gelu(nn.Dense(2 * self.width)(h))
        h = nn.Dropout(0.1, deterministic=not train)(h)
        return x + nn.Dense(self.width)(h)


class Scorer(nn.Module):
    width: int = 32
    depth: int = 4

    @nn.compact
    def __call__(self, x, train=False):
        x = nn.Dense(self.width)(x)
        for _ in range(self.depth):
            x = Block(self.width)(x, train)
        return nn.Dense(1)(nn.LayerNorm()(x))[:, 0]


def auc(scores, y):
    order = np.argsort(scores)
    rank = np.empty(len(scores))
    rank[order] = np.arange(1, len(scores) + 1)
    pos = y == 1
    return (rank[pos].sum() - pos.sum() * (pos.sum() + 1) / 2) / (pos.sum() * (~pos).sum())


@jax.jit
def train_step(state, x, y, key):
    key = jax.random.fold_in(key, state.step)

    def loss_fn(params):
        logits = state.apply_fn({"params": params}, x, train=True, rngs={"dropout": key})
        return optax.sigmoid_binary_cross_entropy(logits, y).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


@jax.jit
def predict(params, x):
    return jax.nn.sigmoid(Scorer().apply({"params": params}, x))


def build_state(key, features, steps, lr):
    model = Scorer()
    params = model.init(key, jnp.zeros((1, features)))["params"]
    schedule = optax.warmup_cosine_decay_schedule(0.0, lr, steps // 10, steps)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-3))
    return train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx)


def folds(n, k, rng):
    order = rng.permutation(n)
    parts = np.array_split(order[: n - n % k], k)
    for i in range(k):
        yield np.concatenate(parts[:i] + parts[i + 1:]), parts[i]


def run_fold(x, y, tr, va, args, seed):
    mean, std = x[tr].mean(0), x[tr].std(0) + 1e-6
    xt, xv = (x[tr] - mean) / std, (x[va] - mean) / std
    per_epoch = len(tr) // args.batch
    key = jax.random.key(seed)
    state = build_state(key, x.shape[1], per_epoch * args.epochs, args.lr)
    rng = np.random.default_rng(seed)
    for _ in range(args.epochs):
        order = rng.permutation(len(tr))
        for b in range(per_epoch):
            idx = order[b * args.batch:(b + 1) * args.batch]
            state, loss = train_step(state, xt[idx], y[tr][idx], key)
    return auc(np.asarray(predict(state.params, xv)), y[va]), float(loss)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rows", type=int, default=4000)
    p.add_argument("--folds", type=int, default=5)
    p.add_argument("--repeats", type=int, default=1)
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--lr", type=float, default=2e-3)
    args = p.parse_args()
    x, y = make_table(args.rows)
    rng = np.random.default_rng(0)
    results = []
    for rep in range(args.repeats):
        for k, (tr, va) in enumerate(folds(len(x), args.folds, rng)):
            began = time.time()
            score, loss = run_fold(x, y, tr, va, args, 100 * rep + k)
            results.append(score)
            print(f"repeat {rep} fold {k}: auc {score:.4f} last loss {loss:.4f} in {time.time() - began:.1f}s", flush=True)
    print(f"auc {np.mean(results):.4f} +- {np.std(results):.4f}")


if __name__ == "__main__":
    main()
