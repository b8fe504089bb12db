"""Predicts the solubility of small molecules with a message-passing network (flax.linen).

Molecules are packed into padded graphs; three paddings cover all the packs."""
import functools
import time
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

ATOMS = 7
PADDINGS = ((64, 160), (128, 320), (224, 560))
GRAPHS = 12


class Pack(NamedTuple):
    atom: np.ndarray
    sender: np.ndarray
    receiver: np.ndarray
    owner: np.ndarray
    target: np.ndarray
    real: np.ndarray


def molecule(rng):
    n = int(rng.integers(4, 20))
    atom = rng.choice(ATOMS, n, p=[.5, .15, .15, .1, .05, .03, .02])
    bonds = [(i, int(rng.integers(max(0, i - 3), i))) for i in range(1, n)]
    if n > 6:
        bonds.append((n - 1, n - 6))
    a, b = np.array(bonds).T
    polar = np.isin(atom, (1, 2)).astype(float)
    target = polar.mean() * 3 - 0.05 * n + 0.5 * (polar[a] * polar[b]).sum() / n
    return atom, np.concatenate([a, b]), np.concatenate([b, a]), target + 0.02 * rng.standard_normal()


def pack(molecules, paddings):
    nodes = sum(len(m[0]) for m in molecules)
    edges = sum(len(m[1]) for m in molecules)
    n, e = next(p for p in paddings if p[0] > nodes and p[1] >= edges)
    atom, owner = np.zeros(n, np.int32), np.full(n, GRAPHS - 1, np.int32)
    sender, receiver = np.full(e, n - 1, np.int32), np.full(e, n - 1, np.int32)
    target, real = np.zeros(GRAPHS, np.float32), np.zeros(GRAPHS, np.float32)
    i = j = 0
    for g, (a, s, r, y) in enumerate(molecules):
        atom[i:i + len(a)], owner[i:i + len(a)] = a, g
        sender[j:j + len(s)], receiver[j:j + len(r)] = s + i, r + i
        target[g], real[g] = y, 1
        i, j = i + len(a), j + len(s)
    return Pack(atom, sender, receiver, owner, target, real)


class SolubilityNet(nn.Module):
    width: int = 32
    rounds: int = 2

    @nn.compact
    def __call__(self, g, train: bool):
        h = nn.Embed(ATOMS, self.width)(g.atom)
        for _ in range(self.rounds):
            m = nn.relu(nn.Dense(self.width)(jnp.concatenate([h[g.sender], h[g.receiver]], -1)))
            gathered = jax.ops.segment_sum(m, g.receiver, h.shape[0])
            h = h + nn.relu(nn.Dense(self.width)(jnp.concatenate([h, gathered], -1)))
        h = nn.Dropout(0.05, deterministic=not train)(h)
        sums = jax.ops.segment_sum(h, g.owner, GRAPHS)
        count = jax.ops.segment_sum(jnp.ones(len(h)), g.owner, GRAPHS)
        return nn.Dense(1)(sums / jnp.maximum(count, 1)[:, None])[:, 0]


net = SolubilityNet()
tx = optax.adam(optax.exponential_decay(3e-3, 400, 0.5))


def forward(params, g, train, key=None):
    out = net.apply(params, g, train, rngs={"dropout": key} if train else None)
    return (((out - g.target) ** 2) * g.real).sum() / g.real.sum()


@jax.jit
def update(params, opt_state, key, g):
    key, sub = jax.random.split(key)
    loss, grads = jax.value_and_grad(forward)(params, g, True, sub)
    delta, opt_state = tx.update(grads, opt_state)
    return optax.apply_updates(params, delta), opt_state, key, loss


score = jax.jit(forward, static_argnums=2)


def packs(molecules, rng=None, paddings=PADDINGS):
    """Packs of up to eleven molecules (the last graph takes the padding)."""
    order = rng.permutation(len(molecules)) if rng is not None else np.arange(len(molecules))
    i = 0
    while i < len(order):
        take = int(rng.integers(3, GRAPHS)) if rng is not None else GRAPHS - 1
        yield pack([molecules[j] for j in order[i:i + take]], paddings)
        i += take


def main():
    rng = np.random.default_rng(4)
    molecules = [molecule(rng) for _ in range(3000)]
    train, test = molecules[:2700], molecules[2700:]
    train_packs = [jax.device_put(p) for p in packs(train, rng)]
    test_packs = [jax.device_put(p) for p in packs(test, paddings=PADDINGS[-1:])]
    params = jax.jit(functools.partial(net.init, train=False))(jax.random.key(0), test_packs[0])
    opt_state, key = tx.init(params), jax.random.key(1)

    step, began, window = 0, time.perf_counter(), []
    for epoch in range(12):
        for i in rng.permutation(len(train_packs)):
            params, opt_state, key, loss = update(params, opt_state, key, train_packs[i])
            window.append(loss)
            step += 1
            if step % 250 == 0:
                print(f"step {step} mse {np.mean(jax.device_get(window)):.4f} {time.perf_counter() - began:.1f} s")
                window.clear()
    mse = {}
    for name, stochastic in (("test", False), ("test with dropout", True)):
        mse[name] = np.mean(jax.device_get([score(params, g, stochastic, key) for g in test_packs]))
    print("  ".join(f"{k} {v:.4f}" for k, v in mse.items()), f"{time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
