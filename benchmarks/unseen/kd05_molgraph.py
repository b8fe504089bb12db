"""Solubility of random molecule-like graphs: edge-conditioned message passing, flax.nnx.

Self-supervised warm start (mask the atom type), then regression with a growing weight
on the auxiliary charge head, as in the paper's schedule.
"""
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

N_ATOM, N_BOND = 9, 4


@dataclass(frozen=True)
class Objective:
    kind: str
    aux_weight: float = 0.0
    mask_rate: float = 0.15
    huber: float = 1.0


def random_molecule(rng):
    n = int(rng.integers(8, 22))
    parents = [int(rng.integers(max(0, i - 3), i)) for i in range(1, n)]
    send = np.concatenate([np.arange(1, n), parents])
    recv = np.concatenate([parents, np.arange(1, n)])
    atoms = rng.integers(1, N_ATOM, n)
    bonds = np.tile(rng.integers(0, N_BOND, n - 1), 2)
    charge = (atoms % 3) - 1.0
    y = charge.sum() * 0.2 + np.log(n) - 0.3 * (bonds == 2).sum()
    return atoms, send, recv, bonds, charge, y


def pack(mols, max_nodes, max_edges):
    """Concatenate molecules into one padded graph; spare nodes belong to a spare graph."""
    g = len(mols)
    atoms = np.zeros(max_nodes, np.int32)
    charge = np.zeros(max_nodes, np.float32)
    graph = np.full(max_nodes, g, np.int32)
    send = np.full(max_edges, max_nodes - 1, np.int32)
    recv = np.full(max_edges, max_nodes - 1, np.int32)
    bonds = np.zeros(max_edges, np.int32)
    n = e = 0
    for k, (a, s, r, b, c, _) in enumerate(mols):
        atoms[n:n + len(a)], charge[n:n + len(a)], graph[n:n + len(a)] = a, c, k
        send[e:e + len(s)], recv[e:e + len(s)], bonds[e:e + len(s)] = s + n, r + n, b
        n, e = n + len(a), e + len(s)
    y = np.array([m[5] for m in mols], np.float32)
    return dict(atoms=atoms, charge=charge, graph=graph, send=send, recv=recv, bonds=bonds, y=y)


class Layer(nnx.Module):
    def __init__(self, d, rngs):
        self.msg = nnx.Linear(2 * d, d, rngs=rngs)
        self.gru = nnx.GRUCell(d, d, rngs=rngs)
        self.norm = nnx.LayerNorm(d, rngs=rngs)

    def __call__(self, h, e, send, recv):
        m = nnx.relu(self.msg(jnp.concatenate([h[send], e], -1)))
        agg = jax.ops.segment_sum(m, recv, len(h))
        return self.norm(self.gru(h, agg)[1])


class MolNet(nnx.Module):
    def __init__(self, d, depth, rngs):
        self.atom = nnx.Embed(N_ATOM, d, rngs=rngs)
        self.bond = nnx.Embed(N_BOND, d, rngs=rngs)
        self.layers = nnx.List([Layer(d, rngs) for _ in range(depth)])
        self.head = nnx.Linear(d, 1, rngs=rngs)
        self.charge = nnx.Linear(d, 1, rngs=rngs)
        self.which = nnx.Linear(d, N_ATOM, rngs=rngs)

    def __call__(self, b, n_graphs, atoms):
        h, e = self.atom(atoms), self.bond(b["bonds"])
        for layer in self.layers:
            h = layer(h, e, b["send"], b["recv"])
        pooled = jax.ops.segment_sum(h, b["graph"], n_graphs + 1)[:-1]
        return self.head(pooled)[:, 0], self.charge(h)[:, 0], self.which(h)


@nnx.jit(static_argnames="objective")
def step(model, optimizer, batch, key, objective):
    real = batch["graph"] < len(batch["y"])

    def loss_fn(m):
        hidden = jax.random.bernoulli(key, objective.mask_rate, real.shape) & real
        masked = objective.kind == "mask"
        atoms = jnp.where(hidden, 0, batch["atoms"]) if masked else batch["atoms"]
        y, charge, which = m(batch, len(batch["y"]), atoms)
        if masked:
            ce = optax.softmax_cross_entropy_with_integer_labels(which, batch["atoms"])
            return (ce * hidden).sum() / (hidden.sum() + 1)
        main = optax.huber_loss(y, batch["y"], delta=objective.huber).mean()
        aux = (((charge - batch["charge"]) ** 2) * real).sum() / real.sum()
        return main + objective.aux_weight * aux

    loss, grads = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss


def run_phase(model, optimizer, mols, objective, epochs, rng, key):
    for epoch in range(epochs):
        if objective.kind == "regress":
            objective = replace(objective, aux_weight=round(0.5 * (epoch + 1) / epochs, 3))
        order = rng.permutation(len(mols))
        losses = []
        for i in range(0, len(order), 32):
            key, sub = jax.random.split(key)
            batch = pack([mols[j] for j in order[i:i + 32]], 704, 1344)
            losses.append(step(model, optimizer, batch, sub, objective))
        print(f"{objective.kind} {epoch}: {float(jnp.stack(losses).mean()):.4f}")


def main():
    rng = np.random.default_rng(0)
    mols = [random_molecule(rng) for _ in range(640)]
    model = MolNet(48, 4, nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)
    key = jax.random.key(0)
    run_phase(model, optimizer, mols, Objective("mask"), 3, rng, key)
    run_phase(model, optimizer, mols, Objective("regress"), 10, rng, jax.random.fold_in(key, 1))


if __name__ == "__main__":
    main()
