"""Calibrate a Heston stochastic-volatility model to a quoted option surface.

Quotes are made with a known parameter set; a finite-difference
Levenberg-Marquardt search over common random numbers recovers it.
"""
import argparse
import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Heston:
    kappa: float
    theta: float
    xi: float
    rho: float
    v0: float

    def to_vector(self):
        return np.array(dataclasses.astuple(self))

    @classmethod
    def from_vector(cls, x):
        return cls(*[float(v) for v in x])


@dataclasses.dataclass(frozen=True)
class Market:
    spot: float = 100.0
    rate: float = 0.02
    steps_per_year: int = 64
    maturities: tuple = (0.25, 0.5, 1.0)
    moneyness: tuple = (0.85, 0.925, 1.0, 1.075, 1.15)


BOX_LO = np.array([0.3, 0.005, 0.05, -0.95, 0.005])
BOX_HI = np.array([6.0, 0.25, 1.20, 0.0, 0.25])


@partial(jax.jit, static_argnames=("model", "market"))
def surface(normals, model, market):
    """Prices on the (maturity, strike) grid, full-truncation Euler scheme."""
    dt = 1.0 / market.steps_per_year
    n_paths = normals.shape[2]
    strikes = market.spot * jnp.asarray(market.moneyness)

    def step(carry, z):
        log_s, v = carry
        vp = jnp.maximum(v, 0.0)
        zs = model.rho * z[0] + jnp.sqrt(1.0 - model.rho ** 2) * z[1]
        log_s = log_s + (market.rate - 0.5 * vp) * dt + jnp.sqrt(vp * dt) * zs
        v = v + model.kappa * (model.theta - vp) * dt + model.xi * jnp.sqrt(vp * dt) * z[0]
        return (log_s, v), None

    state = (jnp.full(n_paths, jnp.log(market.spot)), jnp.full(n_paths, model.v0))
    rows, done = [], 0
    for maturity in market.maturities:
        upto = int(round(maturity * market.steps_per_year))
        state, _ = jax.lax.scan(step, state, normals[done:upto])
        done = upto
        payoff = jnp.maximum(jnp.exp(state[0])[None, :] - strikes[:, None], 0.0)
        rows.append(jnp.exp(-market.rate * maturity) * payoff.mean(axis=1))
    return jnp.stack(rows)


def draw_normals(seed, market, n_paths):
    n_steps = int(round(max(market.maturities) * market.steps_per_year))
    half = jax.random.normal(jax.random.key(seed), (n_steps, 2, n_paths // 2))
    return jnp.concatenate([half, -half], axis=2)


def residuals(x, quotes, normals, market):
    model = Heston.from_vector(x)
    return (np.asarray(surface(normals, model, market)) - quotes).ravel().astype(float)


def jacobian(x, r0, quotes, normals, market):
    jac = np.empty((r0.size, x.size))
    for j in range(x.size):
        h = 1e-2 * max(abs(x[j]), 0.05)
        bumped = x.copy()
        bumped[j] += h
        jac[:, j] = (residuals(bumped, quotes, normals, market) - r0) / h
    return jac


def calibrate(x, quotes, normals, market, n_iter):
    damping = 1e-2
    r = residuals(x, quotes, normals, market)
    for it in range(n_iter):
        jac = jacobian(x, r, quotes, normals, market)
        hess = jac.T @ jac
        step = np.linalg.solve(hess + damping * np.diag(np.diag(hess) + 1e-8), -jac.T @ r)
        trial = np.clip(x + step, BOX_LO, BOX_HI)
        r_trial = residuals(trial, quotes, normals, market)
        if r_trial @ r_trial < r @ r:
            x, r, damping = trial, r_trial, damping * 0.4
        else:
            damping *= 5.0
        rmse = np.sqrt(np.mean(r ** 2))
        print(f"iter {it:2d}  rmse {rmse:.5f}  damping {damping:.1e}")
    return Heston.from_vector(x), rmse


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--paths", type=int, default=40000)
    ap.add_argument("--iters", type=int, default=12)
    args = ap.parse_args()
    market = Market()
    truth = Heston(kappa=1.8, theta=0.06, xi=0.5, rho=-0.6, v0=0.045)
    normals = draw_normals(0, market, args.paths)
    quotes = np.asarray(surface(draw_normals(9, market, args.paths), truth, market))
    start = Heston(kappa=1.0, theta=0.1, xi=0.3, rho=-0.3, v0=0.09)
    fitted, rmse = calibrate(start.to_vector(), quotes, normals, market, args.iters)
    for name, value in dataclasses.asdict(fitted).items():
        print(f"{name:6s} fitted {value:7.3f}   true {getattr(truth, name):7.3f}")
    print(f"pricing error {rmse:.4f} on spot {market.spot}")


if __name__ == "__main__":
    main()
