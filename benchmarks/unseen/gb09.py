"""Message passing on random molecule-like graphs, padded to three sizes; predicts a ring-weighted energy."""
import time
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

BUCKETS = ((256, 640), (384, 960), (640, 1600))      # nodes, directed edges of a packed batch
GRAPHS, KINDS, WIDTH, ROUNDS = 16, 5, 48, 2
EPOCHS, TRAIN, VALID = 14, 1280, 256


def random_graph(rng):
    n = int(rng.integers(8, 34))
    parent = np.array([rng.integers(max(0, i - 4), i) for i in range(1, n)])
    extra = rng.integers(0, n, (max(1, n // 8), 2))
    extra = extra[extra[:, 0] != extra[:, 1]]
    pairs = np.concatenate([np.stack([np.arange(1, n), parent], 1), extra])
    kinds = rng.integers(0, KINDS, n)
    energy = 0.5 * np.sum((kinds[pairs[:, 0]] - kinds[pairs[:, 1]]) ** 2) - 0.7 * kinds.sum()
    return kinds, np.concatenate([pairs, pairs[:, ::-1]]), energy / 10.0


def pack(graphs):
    """One batch of graphs as flat arrays in the smallest bucket that holds it; the last node is a dummy."""
    nodes = sum(len(g[0]) for g in graphs)
    edges = sum(len(g[1]) for g in graphs)
    cap_n, cap_e = next(b for b in BUCKETS if nodes < b[0] and edges <= b[1])
    kinds, owner = np.zeros(cap_n, np.int32), np.full(cap_n, GRAPHS, np.int32)
    links = np.full((cap_e, 2), cap_n - 1, np.int32)
    n = e = 0
    for g, (kind, pair, _) in enumerate(graphs):
        kinds[n:n + len(kind)], owner[n:n + len(kind)] = kind, g
        links[e:e + len(pair)] = pair + n
        n, e = n + len(kind), e + len(pair)
    return kinds, owner, links, np.array([g[2] for g in graphs], np.float32)


class MessageNet(eqx.Module):
    embed: eqx.nn.Embedding
    messages: list
    updates: list
    readout: eqx.nn.MLP

    def __init__(self, key):
        ke, km, ku, kr = jax.random.split(key, 4)
        self.embed = eqx.nn.Embedding(KINDS, WIDTH, key=ke)
        self.messages = [eqx.nn.Linear(2 * WIDTH, WIDTH, key=k) for k in jax.random.split(km, ROUNDS)]
        self.updates = [eqx.nn.Linear(2 * WIDTH, WIDTH, key=k) for k in jax.random.split(ku, ROUNDS)]
        self.readout = eqx.nn.MLP(WIDTH, "scalar", WIDTH, 1, key=kr)

    def __call__(self, kinds, owner, links):
        h = jax.vmap(self.embed)(kinds)
        for message, update in zip(self.messages, self.updates):
            m = jax.nn.silu(jax.vmap(message)(jnp.concatenate([h[links[:, 0]], h[links[:, 1]]], -1)))
            total = jax.ops.segment_sum(m, links[:, 1], num_segments=h.shape[0])
            h = h + jax.nn.silu(jax.vmap(update)(jnp.concatenate([h, total], -1)))
        per_node = jax.vmap(self.readout)(h)
        return jax.ops.segment_sum(per_node, owner, num_segments=GRAPHS + 1)[:GRAPHS]


def squared_error(model, batch):
    kinds, owner, links, target = batch
    return jnp.mean((model(kinds, owner, links) - target) ** 2)


optim = optax.adam(optax.exponential_decay(3e-3, 200, 0.7))


@partial(eqx.filter_jit, donate="all-except-first")
def train_step(batch, model, opt_state):
    loss, grads = eqx.filter_value_and_grad(squared_error)(model, batch)
    updates, opt_state = optim.update(grads, opt_state)
    return eqx.apply_updates(model, updates), opt_state, loss


evaluate = eqx.filter_jit(squared_error)


def main():
    rng = np.random.default_rng(4)
    graphs = [random_graph(rng) for _ in range(TRAIN + VALID)]
    train, valid = graphs[:TRAIN], graphs[TRAIN:]
    held = [pack(valid[i:i + GRAPHS]) for i in range(0, VALID, GRAPHS)]
    model = MessageNet(jax.random.key(0))
    opt_state = optim.init(eqx.filter(model, eqx.is_array))
    best, spread = np.inf, np.var([g[2] for g in valid])
    for epoch in range(1, EPOCHS + 1):
        began, losses = time.perf_counter(), []
        order = rng.permutation(TRAIN)
        for i in range(0, TRAIN, GRAPHS):
            batch = pack([train[k] for k in order[i:i + GRAPHS]])
            model, opt_state, loss = train_step(batch, model, opt_state)
            losses.append(loss)
        jax.block_until_ready(losses[-1])
        rate = TRAIN / (time.perf_counter() - began)
        error = float(np.mean(jax.device_get([evaluate(model, batch) for batch in held])))
        if error < best:
            best = error
            kept = jax.tree.map(lambda leaf: np.array(leaf) if eqx.is_array(leaf) else leaf, model)
        if epoch % 2 == 0:
            print(f"epoch {epoch:2d}  train {np.mean(jax.device_get(losses)):.4f}  valid {error:.4f}  "
                  f"{rate:.0f} graphs/s")
    final = np.mean([float(evaluate(kept, batch)) for batch in held])
    print(f"best model: valid {final:.4f}, explained variance {1 - final / spread:.3f}")


if __name__ == "__main__":
    main()
