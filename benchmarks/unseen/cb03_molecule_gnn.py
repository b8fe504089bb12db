"""Message passing network that predicts a synthetic molecular energy."""
import functools
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

MAX_NODES = 640
MAX_EDGES = 1600
GRAPHS = 32


@dataclass
class Molecule:
    species: np.ndarray
    edges: np.ndarray
    dist: np.ndarray
    energy: float


def random_molecule(rng):
    n = int(rng.integers(6, 20))
    pos = rng.normal(size=(n, 3)) * n ** (1 / 3)
    d = np.linalg.norm(pos[:, None] - pos[None], axis=-1) + 10 * np.eye(n)
    src = np.arange(n)
    near = np.argsort(d, 1)[:, :2]
    edges = np.stack([np.repeat(src, 2), near.ravel()])
    dist = d[edges[0], edges[1]]
    species = rng.integers(0, 5, n)
    return Molecule(species, edges, dist, float(np.exp(-dist).sum() - 0.1 * species.sum()) / 5)


def collate(mols):
    """Concatenates the molecules and pads nodes and edges to a fixed budget."""
    species = np.zeros(MAX_NODES, np.int32)
    graph = np.full(MAX_NODES, GRAPHS - 1, np.int32)
    mask = np.zeros(MAX_NODES, np.float32)
    src = np.full(MAX_EDGES, MAX_NODES - 1, np.int32)
    dst = np.full(MAX_EDGES, MAX_NODES - 1, np.int32)
    dist = np.full(MAX_EDGES, 30.0, np.float32)
    n = e = 0
    for g, m in enumerate(mols):
        k, c = len(m.species), m.edges.shape[1]
        species[n : n + k], graph[n : n + k], mask[n : n + k] = m.species, g, 1
        src[e : e + c], dst[e : e + c] = m.edges[0] + n, m.edges[1] + n
        dist[e : e + c] = m.dist
        n, e = n + k, e + c
    batch = dict(species=species, graph=graph, mask=mask, src=src, dst=dst, dist=dist,
                 energy=np.array([m.energy for m in mols], np.float32))
    return batch, n


class Interaction(nn.Module):
    dim: int

    @nn.compact
    def __call__(self, h, batch, n_nodes):
        rbf = jnp.exp(-((batch["dist"][:, None] - jnp.linspace(0, 6, 16)) ** 2))
        gate = nn.Dense(self.dim)(nn.silu(nn.Dense(self.dim)(rbf)))
        msg = gate * nn.Dense(self.dim)(h)[batch["src"]]
        agg = jax.ops.segment_sum(msg, batch["dst"], n_nodes)
        agg = jnp.pad(agg, ((0, h.shape[0] - n_nodes), (0, 0)))
        return h + nn.Dense(self.dim)(nn.silu(nn.LayerNorm()(agg)))


class EnergyModel(nn.Module):
    dim: int = 48
    layers: int = 1

    @nn.compact
    def __call__(self, batch, n_nodes):
        h = nn.Embed(5, self.dim)(batch["species"])
        for _ in range(self.layers):
            h = Interaction(self.dim)(h, batch, n_nodes)
        atom = nn.Dense(1)(nn.silu(nn.Dense(self.dim)(h)))[:, 0] * batch["mask"]
        return jax.ops.segment_sum(atom, batch["graph"], GRAPHS)


class Trainer:
    def __init__(self, lr, total_steps):
        self.model = EnergyModel()
        self.tx = optax.adamw(optax.cosine_decay_schedule(lr, total_steps))
        self._step = jax.jit(self._update, static_argnums=3, donate_argnums=(0, 1))

    def start(self, batch, n):
        self.params = jax.jit(self.model.init, static_argnums=2)(jax.random.key(0), batch, n)
        self.opt_state = jax.jit(self.tx.init)(self.params)

    def _update(self, params, opt_state, batch, n_nodes):
        def loss_fn(p):
            return jnp.mean((self.model.apply(p, batch, n_nodes) - batch["energy"]) ** 2)

        loss, g = jax.value_and_grad(loss_fn)(params)
        upd, opt_state = self.tx.update(g, opt_state, params)
        return optax.apply_updates(params, upd), opt_state, loss

    def fit_batch(self, batch, n):
        self.params, self.opt_state, loss = self._step(self.params, self.opt_state, batch, n)
        return loss


def main(epochs=12):
    rng = np.random.default_rng(0)
    mols = [random_molecule(rng) for _ in range(160)]
    batches = [collate(mols[i : i + GRAPHS]) for i in range(0, len(mols), GRAPHS)]
    trainer = Trainer(3e-3, epochs * len(batches))
    trainer.start(*batches[0])
    t0 = time.time()
    for epoch in range(epochs):
        losses = []
        for j in rng.permutation(len(batches)):
            losses.append(trainer.fit_batch(*batches[j]))
        if epoch % 3 == 2:
            print(f"epoch {epoch} mse {np.mean(jax.device_get(losses)):.4f} {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
