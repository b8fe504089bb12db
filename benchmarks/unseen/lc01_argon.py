"""Lennard-Jones argon in the NVE/NVT ensemble: melting of an fcc crystal.

A cell grid on the host gives the pair list (Verlet list with a skin), the forces and the
velocity-Verlet integration run in JAX.  Reduced units throughout.
"""
import argparse
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

CUTOFF = 2.5
SKIN = 0.35
DT = 0.004
SHIFT = 4.0 * (CUTOFF ** -12 - CUTOFF ** -6)


@dataclass
class Box:
    length: float
    n: int


def fcc_lattice(cells, density):
    a = (4.0 / density) ** (1.0 / 3.0)
    base = np.array([[0, 0, 0], [.5, .5, 0], [.5, 0, .5], [0, .5, .5]])
    grid = np.stack(np.meshgrid(*[np.arange(cells)] * 3, indexing="ij"), -1).reshape(-1, 1, 3)
    pos = ((grid + base) * a).reshape(-1, 3)
    return pos.astype(np.float32), Box(a * cells, len(pos))


class VerletList:
    """Pairs within CUTOFF + SKIN, found with a linked-cell grid."""

    def __init__(self, box):
        self.box = box
        self.reach = CUTOFF + SKIN
        self.m = max(3, int(box.length // self.reach))
        offsets = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3, indexing="ij"), -1).reshape(-1, 3)
        self.offsets = offsets
        self.builds = 0

    def _cells(self, pos):
        idx = np.floor(pos / self.box.length * self.m).astype(int) % self.m
        return (idx[:, 0] * self.m + idx[:, 1]) * self.m + idx[:, 2]

    def build(self, pos):
        pos = np.asarray(pos) % self.box.length
        cell = self._cells(pos)
        order = np.argsort(cell, kind="stable")
        start = np.searchsorted(cell[order], np.arange(self.m ** 3 + 1))
        heads, tails = [], []
        for c in range(self.m ** 3):
            own = order[start[c]:start[c + 1]]
            ijk = np.array([c // self.m ** 2, c // self.m % self.m, c % self.m])
            near = np.unique(((ijk + self.offsets) % self.m) @ [self.m ** 2, self.m, 1])
            other = np.concatenate([order[start[k]:start[k + 1]] for k in near])
            d = pos[own, None] - pos[None, other]
            d -= self.box.length * np.round(d / self.box.length)
            close = ((d ** 2).sum(-1) < self.reach ** 2) & (own[:, None] < other[None])
            i, j = np.nonzero(close)
            heads.append(own[i])
            tails.append(other[j])
        self.builds += 1
        pairs = np.stack([np.concatenate(heads), np.concatenate(tails)]).astype(np.int32)
        return jnp.asarray(pairs)


def pair_energy(pos, pairs, length):
    d = pos[pairs[0]] - pos[pairs[1]]
    d = d - length * jnp.round(d / length)
    r2 = jnp.maximum((d ** 2).sum(-1), 0.5)
    inv6 = 1.0 / r2 ** 3
    return jnp.where(r2 < CUTOFF ** 2, 4.0 * (inv6 ** 2 - inv6) - SHIFT, 0.0).sum()


@jax.jit
def run_block(pos, vel, pairs, length, target):
    """Ten velocity-Verlet steps followed by a gentle Berendsen rescaling."""
    force = jax.grad(lambda p: -pair_energy(p, pairs, length))

    def step(state, _):
        p, v, f = state
        v = v + 0.5 * DT * f
        p = p + DT * v
        f = force(p)
        return (p, v + 0.5 * DT * f, f), None

    (pos, vel, _), _ = jax.lax.scan(step, (pos, vel, force(pos)), None, length=10)
    temp = (vel ** 2).sum() / (3 * len(pos))
    vel = vel * jnp.sqrt(1.0 + 0.1 * (target / temp - 1.0))
    return pos, vel, temp, pair_energy(pos, pairs, length)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--blocks", type=int, default=100)
    ap.add_argument("--cells", type=int, default=6)
    args = ap.parse_args()

    pos, box = fcc_lattice(args.cells, density=0.84)
    vel = np.random.default_rng(4).normal(0, 1.2, pos.shape).astype(np.float32)
    vel -= vel.mean(0)
    pos, vel = jnp.asarray(pos), jnp.asarray(vel)

    verlet = VerletList(box)
    pairs = verlet.build(pos)
    anchor = pos
    started = time.time()
    for block in range(args.blocks):
        moved = jnp.sqrt(((pos - anchor) ** 2).sum(-1)).max()
        if moved > 0.5 * SKIN:
            pairs = verlet.build(pos)
            anchor = pos
        target = 0.8 + 0.6 * block / args.blocks
        pos, vel, temp, energy = run_block(pos, vel, pairs, box.length, target)
        if block % 15 == 0:
            print(f"block {block:3d}  T {float(temp):.3f}  U/N {float(energy) / box.n:.4f}  "
                  f"pairs {pairs.shape[1]}")
    print(f"{box.n} atoms, {verlet.builds} list builds, U/N {float(energy) / box.n:.4f}, "
          f"{time.time() - started:.1f} s")


if __name__ == "__main__":
    main()
