"""Two-tower retrieval for a podcast app (equinox): histories -> user vector, in-batch softmax loss.

Evaluates recall@20 over the whole catalogue after training.
"""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

N_ITEMS = 6000
N_USERS = 3000
N_TAGS = 64
DIM = 96
MAX_HIST = 60


class ItemTower(eqx.Module):
    emb: eqx.nn.Embedding
    mlp: eqx.nn.MLP

    def __init__(self, key):
        k1, k2 = jax.random.split(key)
        self.emb = eqx.nn.Embedding(N_ITEMS, DIM, key=k1)
        self.mlp = eqx.nn.MLP(DIM + N_TAGS, DIM, 512, 3, key=k2)

    def __call__(self, item, tags):
        z = self.mlp(jnp.concatenate([self.emb(item), tags]))
        return z / (jnp.linalg.norm(z) + 1e-6)


class UserTower(eqx.Module):
    attn: eqx.nn.MultiheadAttention
    norm: eqx.nn.LayerNorm
    out: eqx.nn.MLP

    def __init__(self, key):
        k1, k2 = jax.random.split(key)
        self.attn = eqx.nn.MultiheadAttention(4, DIM, key=k1)
        self.norm = eqx.nn.LayerNorm(DIM)
        self.out = eqx.nn.MLP(DIM, DIM, 192, 1, key=k2)

    def __call__(self, hist_vecs, mask):
        h = jax.vmap(self.norm)(hist_vecs)
        h = h + self.attn(h, h, h, mask=mask[None, :] & mask[:, None] | jnp.eye(len(mask), dtype=bool))
        pooled = (h * mask[:, None]).sum(0) / jnp.maximum(mask.sum(), 1)
        u = self.out(pooled)
        return u / (jnp.linalg.norm(u) + 1e-6)


class Retriever(eqx.Module):
    items: ItemTower
    users: UserTower

    def __init__(self, key):
        k1, k2 = jax.random.split(key)
        self.items, self.users = ItemTower(k1), UserTower(k2)

    def user_vec(self, hist, mask):
        return self.users(jax.vmap(self.items.emb)(hist), mask)

    def rank(self, hist, mask, tags, k):
        catalogue = jax.vmap(self.items)(jnp.arange(N_ITEMS), tags)
        u = jax.vmap(self.user_vec)(hist, mask)
        return jax.lax.top_k(u @ catalogue.T, k)[1]


class Listens:
    """Listening logs; `batches` yields padded histories and the next podcast."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        topic = rng.integers(0, N_TAGS, N_ITEMS)
        self.tags = np.eye(N_TAGS, dtype=np.float32)[topic]
        by_topic = [np.flatnonzero(topic == t) for t in range(N_TAGS)]
        self.hist, self.target = [], []
        for _ in range(N_USERS):
            own = by_topic[rng.integers(N_TAGS)]
            n = int(np.clip(rng.geometric(0.09), 3, MAX_HIST))
            self.hist.append(rng.choice(own, n))
            self.target.append(rng.choice(own))
        self.target = np.asarray(self.target)

    def collate(self, rows):
        longest = max(len(self.hist[r]) for r in rows)
        longest += -longest % 4
        hist = np.zeros((len(rows), longest), np.int32)
        mask = np.zeros((len(rows), longest), bool)
        for i, r in enumerate(rows):
            h = self.hist[r]
            hist[i, :len(h)] = h
            mask[i, :len(h)] = True
        return hist, mask, self.target[rows]

    def batches(self, rng, size):
        order = rng.permutation(2400)
        for i in range(0, len(order) - size + 1, size):
            yield self.collate(order[i:i + size])


def loss_fn(model, hist, mask, target, tags):
    u = jax.vmap(model.user_vec)(hist, mask)
    v = jax.vmap(model.items)(target, tags[target])
    return optax.softmax_cross_entropy_with_integer_labels(12.0 * u @ v.T, jnp.arange(len(target))).mean()


def main():
    data = Listens()
    tags = jnp.asarray(data.tags)
    model = Retriever(jax.random.key(0))
    tx = optax.adam(1e-3)
    opt_state = tx.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_jit
    def step(model, opt_state, hist, mask, target):
        loss, grads = eqx.filter_value_and_grad(loss_fn)(model, hist, mask, target, tags)
        updates, opt_state = tx.update(grads, opt_state)
        return eqx.apply_updates(model, updates), opt_state, loss

    rng = np.random.default_rng(1)
    for epoch in range(2):
        losses = []
        for hist, mask, target in data.batches(rng, 48):
            model, opt_state, loss = step(model, opt_state, hist, mask, target)
            losses.append(loss)
        print(f"epoch {epoch} loss {float(jnp.stack(losses).mean()):.3f}")

    rank = eqx.filter_jit(Retriever.rank)
    hits = []
    for start in range(2400, N_USERS, 10):
        rows = np.arange(start, start + 10)
        hist, mask, target = data.collate(rows)
        pad = MAX_HIST - hist.shape[1]
        hist, mask = (np.pad(a, ((0, 0), (0, pad))) for a in (hist, mask))
        hits.append((rank(model, hist, mask, tags, 20) == target[:, None]).any(1))
    print(f"recall@20 {float(jnp.concatenate(hits).mean()):.3f}")


if __name__ == "__main__":
    main()
