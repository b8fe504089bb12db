"""Calibrate an SVI-like volatility smile per trading day and expiry with scipy's least squares."""
import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from scipy.optimize import least_squares

jax.config.update("jax_enable_x64", True)

EXPIRIES = (0.1, 0.25, 0.5, 1.0)
N_STRIKES = 21
DAYS = 6
NAMES = ("a", "b", "rho", "m", "sigma")
START = np.array([0.03, 0.1, -0.2, 0.0, 0.2])


@dataclasses.dataclass
class Quotes:
    day: int
    expiry: float
    spot: float
    strikes: np.ndarray
    prices: np.ndarray
    vega: np.ndarray


def total_variance(params, k):
    a, b, rho, m, sigma = params
    return a + b * (rho * (k - m) + jnp.sqrt((k - m) ** 2 + sigma ** 2))


def call_price(spot, strikes, expiry, vol):
    d1 = jnp.log(spot / strikes) / (vol * jnp.sqrt(expiry)) + 0.5 * vol * jnp.sqrt(expiry)
    return spot * norm.cdf(d1) - strikes * norm.cdf(d1 - vol * jnp.sqrt(expiry))


def model_prices(params, spot, strikes, expiry):
    w = jnp.maximum(total_variance(params, jnp.log(strikes / spot)), 1e-6)
    return call_price(spot, strikes, expiry, jnp.sqrt(w))


def make_market(seed):
    rng = np.random.default_rng(seed)
    params = np.array([0.02, 0.12, -0.35, 0.02, 0.25])
    spot = 100.0
    price = jax.jit(model_prices)
    for day in range(DAYS):
        spot *= np.exp(rng.normal(0, 0.01))
        params = params + rng.normal(0, [0.001, 0.004, 0.02, 0.005, 0.005])
        for expiry in EXPIRIES:
            width = 1.5 * np.sqrt(expiry) * 0.25
            strikes = spot * np.exp(np.linspace(-width, width, N_STRIKES))
            prices = np.asarray(price(params, spot, strikes, expiry)) + rng.normal(0, 0.01, N_STRIKES)
            vega = spot * np.sqrt(expiry) * np.exp(-0.5 * np.linspace(-1.5, 1.5, N_STRIKES) ** 2) / 2.5
            yield Quotes(day, expiry, spot, strikes, prices, vega)


def residuals(params, start, spot, strikes, expiry, prices, vega):
    model = model_prices(params, spot, strikes, expiry)
    penalty = 0.02 * (params - start)
    return jnp.concatenate([(model - prices) / (vega + 1.0), 0.1 * penalty])


fun = jax.jit(residuals)
jac = jax.jit(jax.jacfwd(residuals))


def calibrate(quotes, start):
    """Fit one smile; residuals in implied-volatility units."""
    given = start, quotes.spot, quotes.strikes, quotes.expiry, quotes.prices, quotes.vega
    bounds = ([-0.1, 1e-3, -0.95, -0.5, 1e-2], [0.5, 1.0, 0.95, 0.5, 1.0])
    fit = least_squares(lambda p: np.asarray(fun(p, *given)), start, jac=lambda p: np.asarray(jac(p, *given)),
                        bounds=bounds, x_scale=[0.05, 0.1, 0.5, 0.1, 0.2], max_nfev=40)
    return fit.x, float(np.sqrt(np.mean(fit.fun[:N_STRIKES] ** 2))), fit.nfev


def butterfly_free(params):
    """Durrleman's condition on a grid of log-moneyness."""
    k = jnp.linspace(-0.6, 0.6, 61)
    w = total_variance(params, k)
    slope = jax.vmap(jax.grad(total_variance, argnums=1), (None, 0))(params, k)
    curve = jax.vmap(jax.grad(jax.grad(total_variance, argnums=1), argnums=1), (None, 0))(params, k)
    g = (1 - k * slope / (2 * w)) ** 2 - slope ** 2 / 4 * (1 / w + 0.25) + curve / 2
    return jnp.all(g > 0)


check_butterfly = jax.jit(butterfly_free)


def main():
    t0 = time.perf_counter()
    previous = {expiry: START for expiry in EXPIRIES}
    day_rows = {}
    for quotes in make_market(seed=12):
        params, rms, calls = calibrate(quotes, previous[quotes.expiry])
        previous[quotes.expiry] = params
        day_rows.setdefault(quotes.day, []).append((quotes.expiry, rms, calls, bool(check_butterfly(params))))
    for day, rows in day_rows.items():
        text = "  ".join(f"T={e:.2f} rms {r:.1e} ({n}{'' if ok else ', arbitrage'})" for e, r, n, ok in rows)
        print(f"day {day}: {text}")
    for expiry, params in previous.items():
        print(f"T={expiry:.2f}", " ".join(f"{n}={v:.3f}" for n, v in zip(NAMES, params)))
    print(f"{time.perf_counter() - t0:.1f}s")


if __name__ == "__main__":
    main()
