"""Two-tower retrieval model for a bookshop: implicit feedback, sampled negatives, checkpoints."""
import os
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

USERS, ITEMS, DIM, TEXT = 4000, 8000, 32, 96
BATCH, NEGATIVES = 256, 16


class Bookshop:
    def __init__(self, seed):
        r = np.random.default_rng(seed)
        taste = r.standard_normal((USERS, 6))
        theme = r.standard_normal((ITEMS, 6))
        text = theme @ r.standard_normal((6, TEXT)) + 0.5 * r.standard_normal((ITEMS, TEXT))
        self.text = jax.device_put(text.astype(np.float32))
        users, items = [], []
        for u in range(USERS):
            shelf = r.choice(ITEMS, 60, replace=False)
            liked = shelf[np.argsort(-(theme[shelf] @ taste[u]))[:12]]
            users += [u] * len(liked)
            items += liked.tolist()
        order = r.permutation(len(users))
        self.users, self.items = np.array(users)[order], np.array(items)[order]
        self.bought = np.unique(np.array(users) * ITEMS + np.array(items))

    def has_bought(self, pairs):
        at = np.minimum(np.searchsorted(self.bought, pairs), len(self.bought) - 1)
        return self.bought[at] == pairs


class InteractionLoader:
    def __init__(self, shop, seed):
        self.shop, self.rng = shop, np.random.default_rng(seed)

    def negatives(self, users):
        out = self.rng.integers(ITEMS, size=(len(users), NEGATIVES))
        while (bad := self.shop.has_bought(users[:, None] * ITEMS + out)).any():
            out[bad] = self.rng.integers(ITEMS, size=int(bad.sum()))
        return out

    def __iter__(self):
        n = len(self.shop.users) - 4000
        order = self.rng.permutation(n)
        for s in range(0, n - BATCH + 1, BATCH):
            idx = order[s:s + BATCH]
            users = self.shop.users[idx]
            yield {"user": users, "pos": self.shop.items[idx],
                   "neg": self.negatives(users)}


def init(key):
    k = jax.random.split(key, 4)
    return {"user": 0.1 * jax.random.normal(k[0], (USERS, DIM)),
            "item": 0.1 * jax.random.normal(k[1], (ITEMS, DIM)),
            "text": jax.random.normal(k[2], (TEXT, 64)) / TEXT**0.5,
            "out": jax.random.normal(k[3], (64, DIM)) / 8.0,
            "bias": jnp.zeros(ITEMS)}


def item_vector(params, text, ids):
    return params["item"][ids] + jax.nn.relu(text[ids] @ params["text"]) @ params["out"]


def loss_fn(params, text, batch):
    ids = jnp.concatenate([batch["pos"][:, None], batch["neg"]], axis=1)
    vectors = item_vector(params, text, ids)
    scores = jnp.einsum("bd,bnd->bn", params["user"][batch["user"]], vectors) + params["bias"][ids]
    return optax.softmax_cross_entropy_with_integer_labels(scores, jnp.zeros(len(scores), jnp.int32)).mean()


tx = optax.chain(optax.add_decayed_weights(1e-5), optax.adagrad(0.1))


@jax.jit
def step(params, opt_state, text, batch):
    loss, grads = jax.value_and_grad(loss_fn)(params, text, batch)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


@jax.jit
def recall_at_50(params, text, users, items):
    vectors = item_vector(params, text, jnp.arange(ITEMS))
    scores = params["user"][users] @ vectors.T + params["bias"]
    target = jnp.take_along_axis(scores, items[:, None], 1)
    return ((scores > target).sum(1) < 50).mean()


class Checkpointer:
    def __init__(self, folder, keep=2):
        self.folder, self.keep, self.files = folder, keep, []

    def save(self, step, params, opt_state):
        leaves = jax.tree.leaves((params, opt_state))
        path = os.path.join(self.folder, f"step{step:06d}.npz")
        np.savez(path, *[np.asarray(v) for v in leaves])
        self.files.append(path)
        while len(self.files) > self.keep:
            os.remove(self.files.pop(0))


def main():
    shop = Bookshop(0)
    loader = InteractionLoader(shop, 1)
    params = init(jax.random.key(0))
    opt_state = tx.init(params)
    held_users, held_items = shop.users[-1024:], shop.items[-1024:]
    started, n = time.perf_counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpointer(folder)
        for epoch in range(2):
            for batch in loader:
                params, opt_state, loss = step(params, opt_state, shop.text, batch)
                n += 1
                if n % 100 == 0:
                    print(f"step {n} loss {float(loss):.4f} {n / (time.perf_counter() - started):.1f} steps/s")
            checkpoints.save(n, params, opt_state)
            recall = recall_at_50(params, shop.text, held_users, held_items)
            print(f"epoch {epoch} recall@50 {float(recall):.4f} {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
