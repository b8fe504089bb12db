"""Parallel tempering of the two-dimensional lattice phi^4 theory (Langevin-corrected Metropolis).

Finite-size scaling: the Binder cumulant is estimated for three lattice sizes over a ladder of
couplings. The measurements stay on the device during a block; a block is one compiled scan.
"""
import argparse
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

LAMBDA = 0.5


class Ladder(NamedTuple):
    phi: jax.Array      # (replicas, side, side)
    kappa: jax.Array    # (replicas,), fixed; configurations move along it
    step: jax.Array     # (replicas,) width of the proposals


def local_energy(phi, kappa):
    neighbours = (jnp.roll(phi, 1, -1) + jnp.roll(phi, -1, -1) + jnp.roll(phi, 1, -2) + jnp.roll(phi, -1, -2))
    return neighbours, -2 * kappa * phi * neighbours + phi ** 2 + LAMBDA * (phi ** 2 - 1) ** 2


def action(phi, kappa):
    neighbours = jnp.roll(phi, 1, -1) + jnp.roll(phi, 1, -2)
    return jnp.sum(-2 * kappa * phi * neighbours + phi ** 2 + LAMBDA * (phi ** 2 - 1) ** 2, axis=(-2, -1))


def checkerboard(side):
    i = np.arange(side)
    return (i[:, None] + i[None, :]) % 2 == 0


def sweep(ladder, key, even):
    phi = ladder.phi
    kappa, width = ladder.kappa[:, None, None], ladder.step[:, None, None]
    accepted = 0.0
    for mask, k in zip((even, ~even), jax.random.split(key)):
        k1, k2 = jax.random.split(k)
        proposal = phi + width * (2 * jax.random.uniform(k1, phi.shape) - 1)
        neighbours, old = local_energy(phi, kappa)
        new = -2 * kappa * proposal * neighbours + proposal ** 2 + LAMBDA * (proposal ** 2 - 1) ** 2
        ok = (jnp.log(jax.random.uniform(k2, phi.shape)) < old - new) & mask
        phi = jnp.where(ok, proposal, phi)
        accepted = accepted + ok.mean((-2, -1))
    return ladder._replace(phi=phi), accepted


def swap(ladder, key, odd):
    """Exchange configurations of neighbouring couplings (pairs begin at 0 or 1)."""
    n = ladder.kappa.shape[0]
    idx = jnp.arange(n)
    partner = jnp.clip(jnp.where((idx + odd) % 2 == 0, idx + 1, idx - 1), 0, n - 1)
    partner = jnp.where(partner[partner] == idx, partner, idx)
    own = action(ladder.phi, ladder.kappa[:, None, None])
    other = action(ladder.phi, ladder.kappa[partner][:, None, None])
    delta = own + own[partner] - other - other[partner]
    u = jax.random.uniform(key, (n,))[jnp.minimum(idx, partner)]
    source = jnp.where(jnp.log(u) < delta, partner, idx)
    return ladder._replace(phi=ladder.phi[source]), (source != idx).mean()


@partial(jax.jit, static_argnames=("sweeps",), donate_argnums=0)
def run_block(ladder, key, *, sweeps):
    even = jnp.asarray(checkerboard(ladder.phi.shape[-1]))

    def body(ladder, inp):
        key, i = inp
        k1, k2 = jax.random.split(key)
        ladder, acc = sweep(ladder, k1, even)
        ladder, swapped = swap(ladder, k2, i % 2)
        m = ladder.phi.mean((-2, -1))
        return ladder, (m, acc, swapped)

    ladder, (m, acc, swapped) = jax.lax.scan(body, ladder, (jax.random.split(key, sweeps), jnp.arange(sweeps)))
    return ladder, (jnp.mean(m ** 2, 0), jnp.mean(m ** 4, 0), acc.mean(0), swapped.mean())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--sides", type=int, nargs="+", default=[8, 16, 24])
    ap.add_argument("--blocks", type=int, default=12)
    ap.add_argument("--sweeps", type=int, default=150)
    args = ap.parse_args()
    kappa = jnp.linspace(0.20, 0.34, 8)
    key = jax.random.key(2)
    for side in args.sides:
        key, sub = jax.random.split(key)
        ladder = Ladder(0.5 * jax.random.normal(sub, (8, side, side)), jnp.array(kappa), jnp.full(8, 1.0))
        blocks = []
        for b in range(args.blocks):
            key, sub = jax.random.split(key)
            ladder, result = run_block(ladder, sub, sweeps=args.sweeps)
            m2, m4, acc, swapped = jax.device_get(result)
            if b < 4:      # thermalisation: adapt the proposals
                ladder = ladder._replace(step=jnp.asarray(np.asarray(ladder.step) * np.exp(acc - 0.5)))
            else:
                blocks.append((m2, m4))
        m2, m4 = (np.mean(x, axis=0) for x in zip(*blocks))
        binder = 1 - m4 / (3 * m2 ** 2)
        print(f"side {side}: acceptance {acc.mean():.2f}, swaps {swapped:.2f}")
        print("  Binder cumulant " + " ".join(f"{u:.3f}" for u in binder))
        print("  susceptibility  " + " ".join(f"{c:.2f}" for c in m2 * side ** 2))


if __name__ == "__main__":
    main()
