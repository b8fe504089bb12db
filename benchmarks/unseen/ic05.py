"""Two-tower recommender on synthetic implicit feedback: sampled softmax with hard negatives, recall@20."""
import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

USERS, ITEMS, GENRES, DIM = 400, 1200, 12, 24


def make_feedback(rng):
    """Users like two genres each; popularity inside a genre is Zipf-like. The last three items are held out."""
    genre = rng.integers(0, GENRES, ITEMS)
    side = np.eye(GENRES, dtype=np.float32)[genre] + rng.normal(0, 0.3, (ITEMS, GENRES)).astype(np.float32)
    seen, held = [], []
    for _ in range(USERS):
        taste = rng.choice(GENRES, 2, replace=False)
        pool = np.flatnonzero(np.isin(genre, taste))
        n = int(np.clip(rng.gamma(4.0, 5.0), 8, 40))
        p = 1.0 / np.arange(2, len(pool) + 2)
        items = rng.choice(pool, min(n, len(pool)), replace=False, p=p / p.sum())
        seen.append(items[:-3].astype(np.int32))
        held.append(items[-3:])
    return side, seen, held


def init(key):
    ks = jax.random.split(key, 5)
    dense = lambda k, a, b: jax.random.normal(k, (a, b)) / np.sqrt(a)
    return {"user": jax.random.normal(ks[0], (USERS, DIM)) * 0.1, "item": jax.random.normal(ks[1], (ITEMS, DIM)) * 0.1,
            "side": dense(ks[2], GENRES, DIM), "hidden": dense(ks[3], DIM, 64), "out": dense(ks[4], 64, DIM)}


def item_tower(params, side, items):
    return params["item"][items] + side[items] @ params["side"]


def user_tower(params, users):
    u = params["user"][users]
    return u + jax.nn.relu(u @ params["hidden"]) @ params["out"]


def loss_fn(params, side, users, pos, neg):
    u = user_tower(params, users)
    good = (u * item_tower(params, side, pos)).sum(-1, keepdims=True)
    bad = jnp.einsum("bd,bnd->bn", u, item_tower(params, side, neg))
    logits = jnp.concatenate([good, bad], 1)
    return optax.softmax_cross_entropy_with_integer_labels(logits, jnp.zeros(len(users), jnp.int32)).mean()


@jax.jit
def mine_hard(params, side):
    """For each user the 64 items that score best now: candidates for negatives."""
    scores = user_tower(params, jnp.arange(USERS)) @ item_tower(params, side, jnp.arange(ITEMS)).T
    return jax.lax.top_k(scores, 64)[1]


@jax.jit
def rank_unseen(params, side, user, seen):
    scores = item_tower(params, side, jnp.arange(ITEMS)) @ user_tower(params, user)
    return jax.lax.top_k(scores.at[seen].set(-jnp.inf), 20)[1]


def recall_at_20(params, side, seen, held):
    hits, longest = [], max(map(len, seen))
    for user in range(USERS):
        own = np.pad(seen[user], (0, longest - len(seen[user])), mode="edge")       # one shape for all users
        top = np.asarray(rank_unseen(params, side, user, own))
        hits.append(np.isin(held[user], top).mean())
    return float(np.mean(hits))


def train_epoch(params, opt_state, tx, side, pairs, rng, batch):
    hard = mine_hard(params, side)

    @jax.jit
    def step(params, opt_state, users, pos, random_neg, column):
        hard_neg = jnp.take_along_axis(hard[users], column, axis=1)
        # an item of the user's own history is a poor negative: replace it by a random one
        hard_neg = jnp.where(hard_neg == pos[:, None], random_neg[:, :8], hard_neg)
        neg = jnp.concatenate([random_neg, hard_neg], 1)
        loss, grads = jax.value_and_grad(loss_fn)(params, side, users, pos, neg)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    total, count = 0.0, 0
    order = rng.permutation(len(pairs))
    for s in range(0, len(order) - batch + 1, batch):
        users, pos = pairs[order[s:s + batch]].T
        random_neg = rng.integers(0, ITEMS, (batch, 24), dtype=np.int32)
        column = rng.integers(0, 64, (batch, 8), dtype=np.int32)
        params, opt_state, loss = step(params, opt_state, users, pos, random_neg, column)
        total, count = total + loss, count + 1
    return params, opt_state, float(total) / count


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--batch", type=int, default=256)
    args = ap.parse_args()
    rng = np.random.default_rng(7)
    side, seen, held = make_feedback(rng)
    side = jnp.asarray(side)
    pairs = np.array([(u, i) for u in range(USERS) for i in seen[u]], np.int32)
    tx = optax.chain(optax.clip_by_global_norm(5.0), optax.adamw(5e-3, weight_decay=1e-4))
    params = init(jax.random.key(0))
    opt_state = tx.init(params)
    print(f"{len(pairs)} interactions, histories of {min(map(len, seen))} to {max(map(len, seen))} items")
    for epoch in range(args.epochs):
        t = time.perf_counter()
        params, opt_state, loss = train_epoch(params, opt_state, tx, side, pairs, rng, args.batch)
        line = f"epoch {epoch:2d}  loss {loss:.3f}  {time.perf_counter() - t:.1f} s"
        if epoch % 3 == 1:
            line += f"  recall@20 {recall_at_20(params, side, seen, held):.3f}"
        print(line)


if __name__ == "__main__":
    main()
