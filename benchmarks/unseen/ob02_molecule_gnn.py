"""Property regression on small random molecules with a message passing network."""
import argparse
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax


class Graph(NamedTuple):
    atoms: np.ndarray
    senders: np.ndarray
    receivers: np.ndarray
    target: float


class Batch(NamedTuple):
    atoms: np.ndarray
    senders: np.ndarray
    receivers: np.ndarray
    graph_id: np.ndarray
    target: np.ndarray


def make_molecules(count, rng):
    out = []
    for _ in range(count):
        n = int(rng.integers(6, 40))
        parents = np.array([rng.integers(0, i) for i in range(1, n)])
        child = np.arange(1, n)
        extra = rng.integers(0, n, size=(2, int(rng.integers(0, n // 3))))
        s = np.concatenate([parents, child, extra[0], extra[1]])
        r = np.concatenate([child, parents, extra[1], extra[0]])
        atoms = rng.integers(0, 8, n)
        deg = np.bincount(r, minlength=n)
        out.append(Graph(atoms, s, r, float(((atoms < 3) * deg).sum() / n)))
    return out


def round_up(n, multiple):
    return -(-n // multiple) * multiple


class Collator:
    """Concatenates graphs; the padding nodes and edges belong to one additional dummy graph."""

    def __init__(self, graphs_per_batch, multiple=8):
        self.graphs_per_batch = graphs_per_batch
        self.multiple = multiple

    def __call__(self, graphs):
        offsets = np.cumsum([0] + [len(g.atoms) for g in graphs])
        nodes = round_up(offsets[-1] + 1, self.multiple)
        edges = round_up(sum(len(g.senders) for g in graphs), self.multiple)
        atoms = np.zeros(nodes, np.int32)
        gid = np.full(nodes, self.graphs_per_batch, np.int32)
        snd = np.full(edges, nodes - 1, np.int32)
        rcv = np.full(edges, nodes - 1, np.int32)
        e = 0
        for i, g in enumerate(graphs):
            atoms[offsets[i]:offsets[i + 1]] = g.atoms
            gid[offsets[i]:offsets[i + 1]] = i
            snd[e:e + len(g.senders)] = g.senders + offsets[i]
            rcv[e:e + len(g.senders)] = g.receivers + offsets[i]
            e += len(g.senders)
        target = np.array([g.target for g in graphs], np.float32)
        return Batch(atoms, snd, rcv, gid, target)


def loader(graphs, collate, rng=None):
    order = np.arange(len(graphs)) if rng is None else rng.permutation(len(graphs))
    b = collate.graphs_per_batch
    for i in range(0, len(order) - b + 1, b):
        yield collate([graphs[j] for j in order[i:i + b]])


def dense(key, n_in, n_out):
    return {"w": jax.random.normal(key, (n_in, n_out)) / np.sqrt(n_in), "b": jnp.zeros(n_out)}


def init(key, width, layers):
    keys = iter(jax.random.split(key, 2 * layers + 2))
    params = {"embed": 0.3 * jax.random.normal(next(keys), (8, width)), "layers": []}
    for _ in range(layers):
        params["layers"].append({"msg": dense(next(keys), 2 * width, width), "upd": dense(next(keys), 2 * width, width)})
    params["out"] = dense(next(keys), width, 1)
    return params


def linear(p, x):
    return x @ p["w"] + p["b"]


def forward(params, batch, num_graphs):
    h = params["embed"][batch.atoms]
    for layer in params["layers"]:
        pair = jnp.concatenate([h[batch.senders], h[batch.receivers]], axis=-1)
        msg = jax.nn.silu(linear(layer["msg"], pair))
        agg = jax.ops.segment_sum(msg, batch.receivers, num_segments=h.shape[0])
        h = h + jax.nn.silu(linear(layer["upd"], jnp.concatenate([h, agg], axis=-1)))
    pooled = jax.ops.segment_sum(h, batch.graph_id, num_segments=num_graphs + 1)[:-1]
    count = jax.ops.segment_sum(jnp.ones(h.shape[0]), batch.graph_id, num_segments=num_graphs + 1)[:-1]
    return linear(params["out"], pooled / count[:, None])[:, 0]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--width", type=int, default=32)
    args = ap.parse_args()
    rng = np.random.default_rng(0)
    train, valid = make_molecules(96, rng), make_molecules(32, rng)
    collate = Collator(args.batch)
    params = init(jax.random.key(0), args.width, 2)
    opt = optax.adamw(2e-3)
    opt_state = opt.init(params)

    def loss_fn(params, batch):
        return jnp.mean((forward(params, batch, args.batch) - batch.target) ** 2)

    @jax.jit
    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, opt_state = opt.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    valid_batches = list(loader(valid, collate))
    start = time.perf_counter()
    for epoch in range(args.epochs):
        losses = []
        for batch in loader(train, collate, rng):
            params, opt_state, loss = train_step(params, opt_state, batch)
            losses.append(loss)
        errors = [jnp.abs(forward(params, b, args.batch) - b.target).mean() for b in valid_batches]
        train_loss, mae = float(np.mean(jax.device_get(losses))), float(np.mean(jax.device_get(errors)))
        print(f"epoch {epoch}  loss {train_loss:.4f}  valid mae {mae:.4f}  {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
