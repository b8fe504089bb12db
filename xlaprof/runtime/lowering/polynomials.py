"""Orthogonal polynomials of a degree that is itself a tensor: Chebyshev, Hermite, Laguerre, Legendre.

All are three-term recurrences, run for all elements at once until the highest degree is reached. Chebyshev polynomials
of higher degree have closed forms within (-1, 1), where PyTorch uses them too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from .registry import Array, finfo, float_opmath, pointwise_table

Polynomial = Callable[[Array, Array], Array]


def _recurrence(n: Array, second: Array, step: Callable[[Any, Array, Array], Array]) -> Array:
    """Element ``n`` of the sequence ``1, second, ...``, whose k+1st is ``step(k, k-1st, kth)``; 0 for n < 0."""

    def active(k: Any, q: Array) -> Array:
        going: Array = (k < n) & (q == q)
        return going

    def advance(state: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
        k, p, q = state
        going = active(k, q)
        return k + 1, jnp.where(going, q, p), jnp.where(going, step(k.astype(q.dtype), p, q), q)

    start = (jnp.ones((), n.dtype), jnp.ones(n.shape, second.dtype), jnp.broadcast_to(second, n.shape))
    _, _, last = lax.while_loop(lambda state: jnp.any(active(state[0], state[2])), advance, start)
    value: Array = jnp.where(n < 0, 0, jnp.where(n == 0, 1, last))
    return value


def _alternating(n: Array) -> Array:
    return jnp.where(n % 2 == 0, 1, -1)


def _chebyshev(first: Callable[[Array], Array], right: Polynomial, left: Polynomial, closed: Polynomial) -> Polynomial:
    """``first`` is the polynomial of degree 1; ``right`` and ``left`` are the values at 1 and -1."""

    def polynomial(x: Array, n: Array) -> Array:
        within = jnp.abs(x) < 1
        high = (n > 8) & within
        value = _recurrence(jnp.where(high, 0, n), first(x), lambda k, p, q: (x + x) * q - p)
        value = jnp.where(high, closed(jnp.where(within, x, 0), n.astype(x.dtype)), value)
        end = jnp.where(x > 0, right(x, n), left(x, n)).astype(x.dtype)
        return jnp.where((jnp.abs(x) == 1) & (n >= 0), end, value)

    return polynomial


def _ratio(numerator: Callable[[Array], Array], denominator: Callable[[Array], Array]) -> Polynomial:
    return lambda x, n: numerator((n + 0.5) * jnp.arccos(x)) / denominator(jnp.arccos(x) / 2)


_t = _chebyshev(
    lambda x: x,
    lambda x, n: jnp.ones_like(x),
    lambda x, n: _alternating(n),
    lambda x, n: jnp.cos(n * jnp.arccos(x)),
)
_u = _chebyshev(
    lambda x: x + x,
    lambda x, n: n + 1,
    lambda x, n: _alternating(n) * (n + 1),
    lambda x, n: jnp.sin((n + 1) * jnp.arccos(x)) / jnp.sin(jnp.arccos(x)),
)
_v = _chebyshev(
    lambda x: x + x - 1,
    lambda x, n: jnp.ones_like(x),
    lambda x, n: _alternating(n) * (n + n + 1),
    _ratio(jnp.cos, jnp.cos),
)
_w = _chebyshev(
    lambda x: x + x + 1,
    lambda x, n: n + n + 1,
    lambda x, n: _alternating(n),
    _ratio(jnp.sin, jnp.sin),
)


def _shifted(polynomial: Polynomial) -> Polynomial:
    return lambda x, n: polynomial(x + x - 1, n)


def _too_high(x: Array, n: Array, value: Array) -> Array:
    """PyTorch gives no Hermite polynomial above a degree at which its dtype overflows."""
    return jnp.where(n > (512 if finfo(x.dtype).bits == 64 else 128), jnp.nan, value)


def _laguerre(x: Array, n: Array) -> Array:
    value = _recurrence(n, 1 - x, lambda k, p, q: ((k + k + (1 - x)) * q - k * p) / (k + 1))
    return jnp.where((x == 0) & (n >= 0), 1, value)


def _legendre(x: Array, n: Array) -> Array:
    value = _recurrence(n, x, lambda k, p, q: ((k + k + 1) * x * q - k * p) / (k + 1))
    end = jnp.where(x > 0, 1, _alternating(n)).astype(x.dtype)
    return jnp.where((jnp.abs(x) == 1) & (n >= 0), end, value)


POLYNOMIALS: dict[str, Polynomial] = {
    "chebyshev_polynomial_t": _t,
    "chebyshev_polynomial_u": _u,
    "chebyshev_polynomial_v": _v,
    "chebyshev_polynomial_w": _w,
    "shifted_chebyshev_polynomial_t": _shifted(_t),
    "shifted_chebyshev_polynomial_u": _shifted(_u),
    "shifted_chebyshev_polynomial_v": _shifted(_v),
    "shifted_chebyshev_polynomial_w": _shifted(_w),
    "hermite_polynomial_h": lambda x, n: _too_high(
        x, n, _recurrence(n, x + x, lambda k, p, q: (x + x) * q - 2 * k * p)
    ),
    "hermite_polynomial_he": lambda x, n: _too_high(x, n, _recurrence(n, x, lambda k, p, q: x * q - k * p)),
    "laguerre_polynomial_l": _laguerre,
    "legendre_polynomial_p": _legendre,
}


def _of_integer_degree(polynomial: Polynomial) -> Polynomial:
    """The degree is truncated to an integer, as C does."""

    def evaluate(x: Array, n: Array) -> Array:
        x, n = jnp.broadcast_arrays(x, n)
        return polynomial(x, jnp.trunc(n).astype(jnp.int64))

    return evaluate


pointwise_table(
    {f"special_{name}": _of_integer_degree(polynomial) for name, polynomial in POLYNOMIALS.items()},
    tensors=2,
    to=float_opmath,
)
