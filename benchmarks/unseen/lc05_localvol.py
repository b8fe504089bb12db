"""Local volatility: a desk's revaluation of an index option book by Monte Carlo.

sigma(t, S) is a bilinear surface in (t, log-moneyness).  Each contract is valued on common random
numbers, together with its delta and its bucketed vega (the gradient with respect to the surface
nodes), and the book's risk is summed up by bucket.
"""
import time
from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

N_PATHS = 8192
STEPS = 64
RATE, DIV = 0.025, 0.012


@partial(jax.tree_util.register_dataclass, data_fields=["vols", "t_nodes", "k_nodes"], meta_fields=[])
@dataclass
class Surface:
    vols: jax.Array
    t_nodes: jax.Array
    k_nodes: jax.Array

    def __call__(self, t, logm):
        nt, nk = self.vols.shape
        i = jnp.clip(jnp.searchsorted(self.t_nodes, t) - 1, 0, nt - 2)
        w = jnp.clip((t - self.t_nodes[i]) / (self.t_nodes[i + 1] - self.t_nodes[i]), 0.0, 1.0)
        slice_t = (1 - w) * self.vols[i] + w * self.vols[i + 1]
        return jnp.interp(logm, self.k_nodes, slice_t)


@partial(jax.tree_util.register_dataclass, data_fields=["notional"],
         meta_fields=["kind", "strike", "barrier", "expiry"])
@dataclass(frozen=True)
class Contract:
    kind: str
    strike: float
    expiry: float
    barrier: float = 0.0
    notional: float = field(default=1.0)

    def payoff(self, terminal, average, low):
        if self.kind == "call":
            return jnp.maximum(terminal - self.strike, 0.0)
        if self.kind == "put":
            return jnp.maximum(self.strike - terminal, 0.0)
        if self.kind == "asian":
            return jnp.maximum(average - self.strike, 0.0)
        alive = jax.nn.sigmoid((low - self.barrier) / (0.002 * self.strike))
        return alive * jnp.maximum(terminal - self.strike, 0.0)


def simulate(spot, surface, expiry, normals):
    dt = expiry / STEPS

    def step(carry, inputs):
        s, total, low = carry
        k, z = inputs
        sigma = surface(k * dt, jnp.log(s / spot))
        s = s * jnp.exp((RATE - DIV - 0.5 * sigma ** 2) * dt + sigma * jnp.sqrt(dt) * z)
        return (s, total + s, jnp.minimum(low, s)), None

    s0 = jnp.full(normals.shape[1], spot)
    (s, total, low), _ = jax.lax.scan(step, (s0, jnp.zeros_like(s0), s0),
                                      (jnp.arange(STEPS, dtype=s0.dtype), normals))
    return s, total / STEPS, low


@jax.jit
def value_and_risk(contract, spot, surface, normals):
    def value(spot, vols):
        shifted = Surface(vols, surface.t_nodes, surface.k_nodes)
        paths = simulate(spot, shifted, contract.expiry, normals)
        discount = jnp.exp(-RATE * contract.expiry)
        return contract.notional * discount * contract.payoff(*paths).mean()

    price, (delta, vega) = jax.value_and_grad(value, argnums=(0, 1))(spot, surface.vols)
    return price, delta, vega


class Desk:
    def __init__(self, spot, surface, seed):
        self.spot, self.surface = spot, surface
        half = jax.random.normal(jax.random.key(seed), (STEPS, N_PATHS // 2))
        self.normals = jnp.concatenate([half, -half], axis=1)

    def revalue(self, book, shift=0.0):
        spot = jnp.float32(self.spot * (1.0 + shift))
        return [value_and_risk(c, spot, self.surface, self.normals) for c in book]

    def report(self, book):
        rows = self.revalue(book)
        prices = np.array([float(r[0]) for r in rows])
        deltas = np.array([float(r[1]) for r in rows])
        vega = np.asarray(sum(r[2] for r in rows)) / 100
        return prices, deltas, vega


def make_surface():
    t = np.array([0.05, 0.25, 0.5, 1.0, 2.0], np.float32)
    k = np.linspace(-0.5, 0.4, 9).astype(np.float32)
    vols = 0.18 - 0.10 * k[None] / np.sqrt(0.4 + t[:, None]) + 0.12 * k[None] ** 2 + 0.01 * t[:, None]
    return Surface(jnp.asarray(vols, jnp.float32), jnp.asarray(t), jnp.asarray(k))


def make_book(n, spot, seed):
    rng = np.random.default_rng(seed)
    book = []
    for _ in range(n):
        kind = rng.choice(["call", "put", "asian", "down-out"], p=[0.35, 0.35, 0.15, 0.15])
        strike = float(np.round(spot * rng.uniform(0.8, 1.2), -1))
        expiry = float(rng.choice([0.25, 0.5, 0.75, 1.0, 1.5]))
        barrier = float(0.75 * spot) if kind == "down-out" else 0.0
        book.append(Contract(str(kind), strike, expiry, barrier, float(rng.integers(-20, 30))))
    return book


def main():
    spot = 4200.0
    desk = Desk(spot, make_surface(), seed=17)
    book = make_book(28, spot, seed=2)
    began = time.time()
    prices, deltas, vega = desk.report(book)
    print(f"book value {prices.sum():,.0f}   delta {deltas.sum():.2f}")
    print("vega by expiry bucket:", np.round(vega.sum(axis=1), 1))
    for shift in (-0.10, -0.05, 0.05, 0.10):
        pnl = sum(float(r[0]) for r in desk.revalue(book, shift)) - prices.sum()
        print(f"spot {shift:+.0%}: P&L {pnl:,.0f}")
    print(f"{len(book)} contracts in {time.time() - began:.1f} s")


if __name__ == "__main__":
    main()
