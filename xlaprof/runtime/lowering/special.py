"""Special functions: error functions, gamma and its kin, Bessel functions."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import jax.scipy.special as jsp
from jax import lax

from .registry import Ctx, float_opmath, lower, opmath_dtype, pointwise_table, rounded, scalar


def _digamma(x: Any) -> Any:
    # PyTorch: a pole at 0 with the sign of the zero, NaN at the negative integers.
    return jnp.where(x == 0, jnp.copysign(jnp.inf, -x), jsp.digamma(x))


def _entr(x: Any) -> Any:
    positive = -x * jnp.log(jnp.where(x > 0, x, 1))
    return jnp.where(jnp.isnan(x), x, jnp.where(x > 0, positive, jnp.where(x == 0, 0, -jnp.inf)))


pointwise_table(
    {
        "erf": jsp.erf,
        "erfc": jsp.erfc,
        "erfinv": jsp.erfinv,
        "lgamma": lambda x: jnp.where(jnp.isinf(x), jnp.inf, jsp.gammaln(x)),
        "digamma": _digamma,
        "i0": jsp.i0,
        "special_i0e": jsp.i0e,
        "special_i1": jsp.i1,
        "special_i1e": jsp.i1e,
        "special_ndtr": jsp.ndtr,
        "special_ndtri": jsp.ndtri,
        "special_log_ndtr": lambda x: jsp.log_ndtr(x),  # its second argument is no number
        "special_entr": _entr,
    },
    to=float_opmath,
)


def _zeta(s: Any, q: Any) -> Any:
    """Hurwitz's zeta function. XLA's holds for positive ``q`` only; terms are summed until there."""
    s, q = jnp.broadcast_arrays(s, q)

    def negative(q: Any) -> Any:
        return (q <= 0) & (q > -(2.0**20))

    def shift(state: Any) -> Any:
        total, q = state
        return total + jnp.where(negative(q), q**-s, 0), jnp.where(negative(q), q + 1, q)

    total, shifted = lax.while_loop(lambda state: jnp.any(negative(state[1])), shift, (jnp.zeros_like(q), q))
    pole = (s == 1) | ((q <= 0) & (q == jnp.floor(q)))
    return jnp.where(s < 1, jnp.nan, jnp.where(pole, jnp.inf, total + jsp.zeta(s, shifted)))


pointwise_table(
    {
        "igamma": jsp.gammainc,
        "igammac": jsp.gammaincc,
        "special_zeta special_zeta.self_scalar special_zeta.other_scalar": _zeta,
    },
    tensors=2,
    to=float_opmath,
)


@lower("aten.polygamma.default")
def polygamma(ctx: Ctx, n: int, self: Any) -> Any:
    (x,) = float_opmath(ctx, self)
    if n == 0:
        return _digamma(x)
    return (-1) ** (n + 1) * math.factorial(n) * _zeta(jnp.asarray(n + 1, x.dtype), x)


@lower("aten.logit.default")
def logit(ctx: Ctx, self: Any, eps: Any = None) -> Any:
    (x,) = float_opmath(ctx, self)
    if eps is not None:
        low, high = _logit_bounds(eps, ctx)
        x = jnp.clip(x, low, high)
    return jnp.log(x / (1 - x))


@lower("aten.logit_backward.default")
def logit_backward(ctx: Ctx, grad_output: Any, self: Any, eps: Any = None) -> Any:
    grad, x = float_opmath(ctx, grad_output, self)
    grad_input = grad / (x * (1 - x))
    if eps is None:
        return jnp.where((x < 0) | (x > 1), jnp.nan, grad_input)
    low, high = _logit_bounds(eps, ctx)
    return jnp.where((x < low) | (x > high), 0, grad_input)


def _logit_bounds(eps: Any, ctx: Ctx) -> tuple[Any, Any]:
    """Rounded to the tensor's dtype: the upper one is 1 for a small ``eps`` in half precision."""
    dtype = ctx.out[0].jax
    wide = opmath_dtype(dtype)
    return rounded(scalar(eps, wide), dtype), rounded(1 - rounded(scalar(eps, wide), dtype), dtype)
