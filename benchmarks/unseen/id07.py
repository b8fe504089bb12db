"""Bermudan put options by Longstaff-Schwartz regression on Heston paths: a table of
prices over strikes and volatilities of volatility, with the early-exercise premium."""
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

SPOT = 100.0
RATE = 0.04
MATURITY = 1.0
KAPPA, THETA, V0, RHO = 2.0, 0.05, 0.04, -0.7


@functools.partial(jax.jit, static_argnames=("n_paths", "n_dates"))
def heston_paths(key, vol_of_vol, n_paths, n_dates):
    """Prices and variances at the exercise dates, antithetic in both drivers."""
    dt = MATURITY / n_dates
    z = jax.random.normal(key, (n_dates, 2, n_paths // 2))
    z = jnp.concatenate([z, -z], axis=-1)

    def step(carry, z):
        log_s, v = carry
        vp = jnp.maximum(v, 0.0)
        zs = RHO * z[0] + jnp.sqrt(1 - RHO ** 2) * z[1]
        log_s = log_s + (RATE - 0.5 * vp) * dt + jnp.sqrt(vp * dt) * zs
        v = v + KAPPA * (THETA - vp) * dt + vol_of_vol * jnp.sqrt(vp * dt) * z[0]
        return (log_s, v), (jnp.exp(log_s), jnp.maximum(v, 0.0))

    start = (jnp.full(n_paths, jnp.log(SPOT)), jnp.full(n_paths, V0))
    _, (s, v) = jax.lax.scan(step, start, z)
    return s, v


def payoff(s, strike):
    return jnp.maximum(strike - s, 0.0)


def basis(s, v, strike):
    x = s / strike - 1.0
    w = 10.0 * (v - THETA)
    return jnp.stack([jnp.ones_like(x), x, x * x, x ** 3, w, w * x, w * w], axis=-1)


def continuation(s, v, value, strike):
    """Regression of the discounted value on in-the-money paths only (by weights)."""
    phi = basis(s, v, strike)
    weight = (payoff(s, strike) > 0).astype(phi.dtype)
    gram = phi.T @ (weight[:, None] * phi) / len(s)
    rhs = phi.T @ (weight * value) / len(s)
    coef = jnp.linalg.solve(gram + 1e-6 * jnp.eye(gram.shape[0]), rhs)
    return phi @ coef


@functools.partial(jax.jit, static_argnames="strike")
def bermudan_put(s, v, strike):
    """Backward induction; returns Bermudan and European values and standard error."""
    n_dates = s.shape[0]
    discount = jnp.exp(-RATE * MATURITY / n_dates)
    value = payoff(s[-1], strike)
    european = jnp.mean(value) * discount ** n_dates
    for k in range(n_dates - 2, -1, -1):
        value = value * discount
        hold = continuation(s[k], v[k], value, strike)
        now = payoff(s[k], strike)
        exercise = (now > 0) & (now > hold)
        value = jnp.where(exercise, now, value)
    value = value * discount
    return jnp.mean(value), european, jnp.std(value) / jnp.sqrt(len(value))


def price_table(strikes, vols, n_paths, n_dates, seed):
    rows = []
    for vol in vols:
        paths = heston_paths(jax.random.key(seed), vol, n_paths, n_dates)
        for strike in strikes:
            rows.append((vol, strike) + bermudan_put(*paths, strike))
    # one transfer for the whole table
    return np.array(jax.device_get(rows))


def check_martingale(n_paths, n_dates):
    s, _ = heston_paths(jax.random.key(99), 0.4, n_paths, n_dates)
    forward = float(jnp.mean(s[-1]) * jnp.exp(-RATE * MATURITY))
    assert abs(forward / SPOT - 1.0) < 0.01, forward
    return forward


def implied_vol(price, strike, iterations=60):
    """Black-Scholes implied volatility of a European put, by bisection on the host."""
    from math import erf, exp, log, sqrt
    cdf = lambda x: 0.5 * (1.0 + erf(x / sqrt(2.0)))
    low, high = 0.01, 1.5
    for _ in range(iterations):
        sigma = 0.5 * (low + high)
        d1 = (log(SPOT / strike) + (RATE + 0.5 * sigma ** 2) * MATURITY) / (sigma * sqrt(MATURITY))
        d2 = d1 - sigma * sqrt(MATURITY)
        put = strike * exp(-RATE * MATURITY) * cdf(-d2) - SPOT * cdf(-d1)
        low, high = (sigma, high) if put < price else (low, sigma)
    return sigma


def main():
    n_paths, n_dates = 8192, 25
    strikes = [90.0, 95.0, 100.0, 105.0, 110.0]
    vols = [0.2, 0.4, 0.6]
    print(f"discounted forward {check_martingale(n_paths, n_dates):.3f} (spot {SPOT})")
    start = time.perf_counter()
    table = price_table(strikes, vols, n_paths, n_dates, seed=1)
    print(f"{len(table)} prices in {time.perf_counter() - start:.1f} s")
    print("vol-of-vol strike  bermudan    s.e.  european  premium  implied vol")
    for vol, strike, american, european, se in table:
        print(f"{vol:10.2f} {strike:6.0f} {american:9.3f} {se:7.3f} {european:9.3f} "
              f"{american - european:8.3f} {implied_vol(european, strike):10.3f}")
    premium = table[:, 2] - table[:, 3]
    print(f"mean early-exercise premium {premium.mean():.3f}")


if __name__ == "__main__":
    main()
