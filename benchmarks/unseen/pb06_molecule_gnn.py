"""Message passing over synthetic molecules (flax nnx): batches are filled up to an atom budget."""
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

ATOMS, BONDS = 160, 384
ELEMENTS = 6


def molecule(rng):
    n = int(rng.integers(8, 34))
    z = rng.integers(0, ELEMENTS, n)
    parent = np.array([rng.integers(0, i) for i in range(1, n)])
    src = np.concatenate([np.arange(1, n), parent])
    dst = np.concatenate([parent, np.arange(1, n)])
    order = np.tile(rng.integers(1, 4, n - 1), 2)
    energy = z.sum() * 0.1 + (order * (z[src] - z[dst]) ** 2).mean() * 0.2
    return z, src, dst, order, energy


def atom_budget(molecules, order):
    """Groups of molecules whose atoms fit the budget."""
    group, atoms, bonds = [], 0, 0
    for i in order:
        n, e = len(molecules[i][0]), len(molecules[i][1])
        if atoms + n > ATOMS - 1 or bonds + e > BONDS:
            yield [molecules[j] for j in group]
            group, atoms, bonds = [], 0, 0
        group.append(i)
        atoms, bonds = atoms + n, bonds + e


def collate(group):
    z = np.zeros(ATOMS, np.int32)
    owner = np.full(ATOMS, len(group), np.int32)
    src = np.full(BONDS, ATOMS - 1, np.int32)
    dst = np.full(BONDS, ATOMS - 1, np.int32)
    order = np.zeros(BONDS, np.int32)
    a = b = 0
    for g, (zs, s, d, o, _) in enumerate(group):
        z[a:a + len(zs)], owner[a:a + len(zs)] = zs, g
        src[b:b + len(s)], dst[b:b + len(s)], order[b:b + len(s)] = s + a, d + a, o
        a, b = a + len(zs), b + len(s)
    target = np.array([m[4] for m in group], np.float32)
    return {"z": z, "owner": owner, "src": src, "dst": dst, "order": order}, target


class Interaction(nnx.Module):
    def __init__(self, dim, rngs):
        self.message = nnx.Linear(2 * dim, dim, rngs=rngs)
        self.update = nnx.Linear(2 * dim, dim, rngs=rngs)
        self.norm = nnx.LayerNorm(dim, rngs=rngs)

    def __call__(self, h, bond, g):
        m = nnx.silu(self.message(jnp.concatenate([h[g["src"]], bond], -1)))
        pooled = jax.ops.segment_sum(m, g["dst"], ATOMS)
        return self.norm(h + self.update(jnp.concatenate([h, pooled], -1)))


class EnergyNet(nnx.Module):
    def __init__(self, dim, depth, rngs):
        self.element = nnx.Embed(ELEMENTS, dim, rngs=rngs)
        self.bond = nnx.Embed(4, dim, rngs=rngs)
        self.blocks = nnx.List([Interaction(dim, rngs) for _ in range(depth)])
        self.readout = nnx.Sequential(nnx.Linear(dim, dim, rngs=rngs), nnx.silu, nnx.Linear(dim, 1, rngs=rngs))

    def __call__(self, g, count):
        h, bond = self.element(g["z"]), self.bond(g["order"])
        for block in self.blocks:
            h = block(h, bond, g)
        atom = self.readout(h)[:, 0]
        return jax.ops.segment_sum(atom, g["owner"], count)


@nnx.jit
def train_step(model, optimizer, graph, target):
    def loss_fn(m):
        return optax.huber_loss(m(graph, target.shape[0]), target).mean()

    loss, grads = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss


@nnx.jit
def abs_error(model, graph, target):
    return jnp.abs(model(graph, target.shape[0]) - target).sum()


def evaluate(model, batches):
    errors = [abs_error(model, g, t) for g, t in batches]
    return sum(map(float, errors)) / sum(len(t) for _, t in batches)


def main():
    rng = np.random.default_rng(0)
    data = [molecule(rng) for _ in range(300)]
    val = [collate(g) for g in atom_budget(data[:100], np.arange(100))]
    train = data[100:]
    model = EnergyNet(32, 3, nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(2e-3), wrt=nnx.Param)
    began = time.time()
    for epoch in range(4):
        losses = []
        for group in atom_budget(train, rng.permutation(len(train))):
            graph, target = collate(group)
            losses.append(train_step(model, optimizer, graph, target))
        print(f"epoch {epoch} loss {np.mean(jax.device_get(losses)):.4f} "
              f"val mae {evaluate(model, val):.4f} {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    main()
