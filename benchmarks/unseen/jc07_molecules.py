"""Message passing on synthetic molecules (equinox): predicts a bond-weighted energy; graphs come in two padded sizes."""
import time
from collections import defaultdict

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

ELEMENTS, HIDDEN, ROUNDS, BATCH, EPOCHS = 5, 32, 2, 32, 14
BUCKETS = (14, 32)  # atoms per molecule after padding; bonds are padded to 4 per atom


def random_molecule(rng):
    n = int(5 + (BUCKETS[-1] - 4) * rng.beta(1, 3))  # most are small
    atoms = rng.integers(0, ELEMENTS, n)
    tree = [(i, int(rng.integers(max(0, i - 3), i))) for i in range(1, n)]
    rings = [(i, i - 4) for i in range(4, n) if rng.uniform() < 0.15]
    bonds = np.array(tree + rings)
    length = rng.uniform(0.8, 1.6, len(bonds))
    affinity = np.cos(1.0 + atoms[bonds[:, 0]] * atoms[bonds[:, 1]])
    energy = (affinity / length).sum() + 0.1 * (atoms == 0).sum()
    return atoms, bonds, length, energy


def pad(mol, size):
    """Fixed-size arrays; the padding's bonds join the last atom to itself with weight nought."""
    atoms, bonds, length, energy = mol
    both = np.concatenate([bonds, bonds[:, ::-1]])
    extra = 4 * size - len(both)
    return {
        "atoms": np.pad(atoms, (0, size - len(atoms))).astype(np.int32),
        "real": (np.arange(size) < len(atoms)).astype(np.float32),
        "src": np.pad(both[:, 0], (0, extra), constant_values=size - 1).astype(np.int32),
        "dst": np.pad(both[:, 1], (0, extra), constant_values=size - 1).astype(np.int32),
        "length": np.pad(np.tile(length, 2), (0, extra), constant_values=1.0).astype(np.float32),
        "bond": (np.arange(4 * size) < len(both)).astype(np.float32),
        "energy": np.float32(energy),
    }


def bucketed(molecules):
    groups = defaultdict(list)
    for mol in molecules:
        size = next(b for b in BUCKETS if len(mol[0]) <= b)
        groups[size].append(pad(mol, size))
    return {size: {k: np.stack([m[k] for m in ms]) for k in ms[0]} for size, ms in groups.items()}


class Network(eqx.Module):
    embed: jax.Array
    messages: list
    updates: list
    readout: eqx.nn.MLP

    def __init__(self, key):
        keys = jax.random.split(key, 2 * ROUNDS + 2)
        self.embed = 0.5 * jax.random.normal(keys[0], (ELEMENTS, HIDDEN))
        self.messages = [eqx.nn.Linear(2 * HIDDEN + 1, HIDDEN, key=k) for k in keys[1:ROUNDS + 1]]
        self.updates = [eqx.nn.Linear(2 * HIDDEN, HIDDEN, key=k) for k in keys[ROUNDS + 1:-1]]
        self.readout = eqx.nn.MLP(HIDDEN, "scalar", HIDDEN, 1, key=keys[-1])

    def __call__(self, g):
        h = self.embed[g["atoms"]]
        for message, update in zip(self.messages, self.updates):
            pair = jnp.concatenate([h[g["src"]], h[g["dst"]], g["length"][:, None]], axis=1)
            m = jax.nn.silu(jax.vmap(message)(pair)) * g["bond"][:, None]
            total = jax.ops.segment_sum(m, g["dst"], num_segments=h.shape[0])
            h = h + jax.nn.silu(jax.vmap(update)(jnp.concatenate([h, total], axis=1)))
        return (jax.vmap(self.readout)(h) * g["real"]).sum()


optimizer = optax.adam(optax.cosine_decay_schedule(4e-3, 1500))


def loss_fn(net, batch):
    return jnp.mean((jax.vmap(net)(batch) - batch["energy"]) ** 2)


@eqx.filter_jit(donate="all-except-first")
def step(batch, net, opt_state, running):
    loss, grads = eqx.filter_value_and_grad(loss_fn)(net, batch)
    updates, opt_state = optimizer.update(grads, opt_state)
    return eqx.apply_updates(net, updates), opt_state, running + loss


@eqx.filter_jit
def absolute_error(net, batch):
    return jnp.abs(jax.vmap(net)(batch) - batch["energy"]).sum()


def epoch_batches(groups, rng):
    plan = [(size, idx) for size, g in groups.items()
            for idx in np.split(rng.permutation(len(g["energy"]))[: len(g["energy"]) // BATCH * BATCH], len(g["energy"]) // BATCH)]
    for i in rng.permutation(len(plan)):
        size, idx = plan[i]
        yield {k: v[idx] for k, v in groups[size].items()}


def main():
    rng = np.random.default_rng(8)
    train = bucketed([random_molecule(rng) for _ in range(4000)])
    held_out = jax.device_put(bucketed([random_molecule(rng) for _ in range(300)]))
    print({size: len(g["energy"]) for size, g in train.items()})
    net = Network(jax.random.key(0))
    opt_state = optimizer.init(eqx.filter(net, eqx.is_array))
    for epoch in range(EPOCHS):
        start, running, count = time.perf_counter(), jnp.zeros(()), 0
        for batch in epoch_batches(train, rng):
            net, opt_state, running = step(batch, net, opt_state, running)
            count += 1
        mse = float(running) / count
        mae = float(sum(absolute_error(net, g) for g in held_out.values())) / 300
        print(f"epoch {epoch:2d}: train mse {mse:8.3f}  held-out mae {mae:.3f}  {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
