"""Bessel and Airy functions, and the scaled error function.

XLA has the modified functions of the first kind only. The others are written as elementary factors (logarithms at the
origin, waves or exponentials far out) times smooth functions, and those are Chebyshev interpolants of scipy's values:
see W. J. Cody's and S. L. Moshier's (Cephes) choice of factors, and DLMF 9.7, 10.8, 10.17, 10.31 and 10.40. The
coefficients are computed when a function is first lowered, and are right to about the last digit of a float64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import jax.scipy.special as jsp
import numpy as np
import scipy.special as sp  # type: ignore[import-untyped]

from .registry import Array, float_opmath, pointwise_table

Table = np.ndarray[Any, Any]

_DEGREE = 40
#: where the expansion at the origin ends and the one at infinity begins
_FAR, _FAR_MODIFIED, _FAR_AIRY = 8.0, 2.0, 2.0


def _interpolant(f: Callable[[Table], Table], low: float, high: float) -> Table:
    """Chebyshev coefficients of ``f`` over [low, high], without those that are below rounding."""
    series = np.polynomial.Chebyshev.interpolate(f, _DEGREE, domain=[low, high]).coef
    size = np.abs(series) > 2**-54 * np.abs(series).max()
    kept: Table = series[: int(np.flatnonzero(size).max()) + 1]
    return kept


def _evaluate(coefficients: Table, low: float, high: float, x: Array) -> Array:
    """Clenshaw's recurrence."""
    t = (2 * x - (low + high)) / (high - low)
    b = c = jnp.zeros_like(x)
    for coefficient in coefficients[:0:-1]:
        b, c = coefficient + 2 * t * b - c, b
    value: Array = coefficients[0] + t * b - c
    return value


def _series(f: Callable[[Table], Table], low: float, high: float) -> Callable[[Array], Array]:
    """``f`` as a function of arrays within [low, high]; what lies outside is moved to the nearer end."""
    coefficients = functools.cache(lambda: _interpolant(f, low, high))
    return lambda x: _evaluate(coefficients(), low, high, jnp.clip(x, low, high))


# -- first and second kind -----------------------------------------------------------------------------

#: scipy's functions by order
_J, _Y, _K, _SCALED_K, _I = (sp.j0, sp.j1), (sp.y0, sp.y1), (sp.k0, sp.k1), (sp.k0e, sp.k1e), (sp.i0, sp.i1)


def _wave(order: int, t: Table) -> tuple[Table, Table]:
    """P and Q of DLMF 10.17.3 at t = (8/x)^2, Q over 8/x: J = sqrt(2 / pi x) (P cos w - Q sin w), Y the other way."""
    x = _FAR / np.sqrt(np.maximum(t, 1e-6))
    c, s = _turned(np.cos(x), np.sin(x), order)
    j, y = _J[order](x), _Y[order](x)
    scale = np.sqrt(np.pi * x / 2)
    return scale * (j * c + y * s), scale * (y * c - j * s) * x / _FAR


def _turned(c: Any, s: Any, order: int) -> tuple[Any, Any]:
    """Cosine and sine of w = x - (order/2 + 1/4) pi, from those of x."""
    r = np.sqrt(0.5)
    return ((c + s) * r, (s - c) * r) if order == 0 else ((s - c) * r, -(c + s) * r)


def _rest_of_y(order: int, z: Table) -> Table:
    """Y without what is singular at the origin, over x^order."""
    x = np.sqrt(np.maximum(z, 1e-12))
    return (_Y[order](x) - 2 / np.pi * (np.log(x) * _J[order](x) - order / x)) / x**order  # type: ignore[no-any-return]


def _of_orders(f: Callable[[int, Table], Table], low: float, high: float) -> list[Callable[[Array], Array]]:
    return [_series(functools.partial(f, order), low, high) for order in (0, 1)]


_P = _of_orders(lambda order, t: _wave(order, t)[0], 0, 1)
_Q = _of_orders(lambda order, t: _wave(order, t)[1], 0, 1)
_NEAR_J = _of_orders(lambda order, z: _J[order](np.sqrt(z)) / np.sqrt(np.maximum(z, 1e-300)) ** order, 0, _FAR**2)
_NEAR_Y = _of_orders(_rest_of_y, 0, _FAR**2)


def _far(x: Array, order: int, second: bool) -> Array:
    t = jnp.square(_FAR / x)
    p, q = _P[order](t), _Q[order](t) * _FAR / x
    c, s = _turned(jnp.cos(x), jnp.sin(x), order)
    wave = p * s + q * c if second else p * c - q * s
    value: Array = jnp.sqrt(2 / (np.pi * x)) * wave  # NaN at infinity, as in PyTorch
    return value


def _j(order: int) -> Callable[[Array], Array]:
    def j(x: Array) -> Array:
        a = jnp.abs(x)
        near = _NEAR_J[order](jnp.square(jnp.minimum(a, _FAR))) * a**order
        value = jnp.where(a < _FAR, near, _far(jnp.maximum(a, _FAR), order, False))
        return jnp.where(jnp.isnan(x), x, jnp.where(x < 0, (-1) ** order * value, value))

    return j


def _y(order: int) -> Callable[[Array], Array]:
    def y(x: Array) -> Array:
        a = jnp.where(x > 0, x, 1)
        low = jnp.minimum(a, _FAR)
        rest = _NEAR_Y[order](low * low) * low**order
        near = rest + 2 / np.pi * (jnp.log(low) * _j(order)(low) - order / low)
        value = jnp.where(a < _FAR, near, _far(jnp.maximum(a, _FAR), order, True))
        return jnp.where(x > 0, value, jnp.where(x == 0, -jnp.inf, jnp.nan))

    return y


# -- modified, of the second kind ----------------------------------------------------------------------


def _rest_of_k(order: int, z: Table) -> Table:
    """K without its logarithm, times x^order."""
    x = np.sqrt(np.maximum(z, 1e-12))
    return x**order * (_K[order](x) + (-1) ** order * np.log(x / 2) * _I[order](x))  # type: ignore[no-any-return]


def _decay_of_k(order: int, t: Table) -> Table:
    x = _FAR_MODIFIED / np.maximum(t, 1e-12)
    return np.sqrt(x) * _SCALED_K[order](x)  # type: ignore[no-any-return]


_NEAR_K = _of_orders(_rest_of_k, 0, _FAR_MODIFIED**2)
_FAR_K = _of_orders(_decay_of_k, 0, 1)


def _k(order: int, scaled: bool) -> Callable[[Array], Array]:
    def k(x: Array) -> Array:
        a = jnp.where(x > 0, x, 1)
        low, high = jnp.minimum(a, _FAR_MODIFIED), jnp.maximum(a, _FAR_MODIFIED)
        logarithm = jnp.log(low / 2) * (jsp.i0, jsp.i1)[order](low)
        near = _NEAR_K[order](low * low) / low**order - (-1) ** order * logarithm
        far = _FAR_K[order](_FAR_MODIFIED / high) / jnp.sqrt(high)  # scaled by exp(x)
        near, far = (near * jnp.exp(low), far) if scaled else (near, far * jnp.exp(-high))
        value = jnp.where(a <= _FAR_MODIFIED, near, far)
        return jnp.where(x > 0, value, jnp.where(x == 0, jnp.inf, jnp.nan))

    return k


# -- the scaled error function --------------------------------------------------------------------------

#: over t = 4 / (4 + x), after S. G. Johnson's Faddeeva package
_ERFCX = _series(lambda t: sp.erfcx(4 / np.maximum(t, 1e-9) - 4) / np.maximum(t, 1e-9), 0, 1)


def _erfcx(x: Array) -> Array:
    t = 4 / (4 + jnp.abs(x))
    value = t * _ERFCX(t)
    value = jnp.where(x < 0, 2 * jnp.exp(jnp.square(jnp.minimum(x, 0))) - value, value)
    return jnp.where(jnp.isnan(x), x, value)


# -- Airy -----------------------------------------------------------------------------------------------


def _airy_waves(t: Table) -> tuple[Table, Table]:
    """Amplitudes of DLMF 9.7.9 at t = 1/zeta^2: Ai(-x) = (A cos w + B sin w) / (sqrt(pi) x^1/4), B over 1/zeta."""
    zeta = 1 / np.sqrt(np.maximum(t, 1e-6))
    x = (1.5 * zeta) ** (2 / 3)
    zeta = 2 / 3 * x * np.sqrt(x)
    ai, _, bi, _ = sp.airy(-x)
    c, s = _turned(np.cos(zeta), np.sin(zeta), 0)
    scale = np.sqrt(np.pi) * x**0.25
    return scale * (ai * c - bi * s), scale * (ai * s + bi * c) * zeta


_ZETA = 2 / 3 * _FAR_AIRY**1.5
_AIRY_COS = _series(lambda t: _airy_waves(t)[0], 0, _ZETA**-2)
_AIRY_SIN = _series(lambda t: _airy_waves(t)[1], 0, _ZETA**-2)
_AIRY_NEAR = _series(lambda x: sp.airy(x)[0], -_FAR_AIRY, _FAR_AIRY)


def _airy_decay(t: Table) -> Table:
    x = (1.5 / np.maximum(t, 1e-9)) ** (2 / 3)
    return 2 * np.sqrt(np.pi) * x**0.25 * sp.airye(x)[0]  # type: ignore[no-any-return]


_AIRY_FAR = _series(_airy_decay, 0, 1 / _ZETA)


def _airy_ai(x: Array) -> Array:
    a = jnp.maximum(jnp.abs(x), _FAR_AIRY)
    zeta = 2 / 3 * a * jnp.sqrt(a)
    root = np.sqrt(np.pi) * jnp.sqrt(jnp.sqrt(a))
    c, s = _turned(jnp.cos(zeta), jnp.sin(zeta), 0)
    t = 1 / (zeta * zeta)
    waves = (_AIRY_COS(t) * c + _AIRY_SIN(t) / zeta * s) / root
    decay = _AIRY_FAR(1 / zeta) * jnp.exp(-zeta) / (2 * root)
    value = jnp.where(jnp.abs(x) < _FAR_AIRY, _AIRY_NEAR(x), jnp.where(x > 0, decay, waves))
    return jnp.where(jnp.isinf(x) | jnp.isnan(x), jnp.nan, value)


def _spherical_j0(x: Array) -> Array:
    safe = jnp.where(x == 0, 1, x)
    return jnp.where(jnp.isinf(x), 0, jnp.where(x == 0, 1, jnp.sin(safe) / safe))


pointwise_table(
    {
        "special_bessel_j0": _j(0),
        "special_bessel_j1": _j(1),
        "special_bessel_y0": _y(0),
        "special_bessel_y1": _y(1),
        "special_modified_bessel_i0": jsp.i0,
        "special_modified_bessel_i1": jsp.i1,
        "special_modified_bessel_k0": _k(0, False),
        "special_modified_bessel_k1": _k(1, False),
        "special_scaled_modified_bessel_k0": _k(0, True),
        "special_scaled_modified_bessel_k1": _k(1, True),
        "special_airy_ai": _airy_ai,
        "special_erfcx": _erfcx,
        "special_spherical_bessel_j0": _spherical_j0,
    },
    to=float_opmath,
)
