"""Special functions: error functions, gamma and its kin, Bessel functions."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import jax.scipy.special as jsp

from xlaprof.runtime.lowering.elementary import Function, floating
from xlaprof.runtime.lowering.registry import Ctx, float_opmath, lower, scalar


def _digamma(x: Any) -> Any:
    # PyTorch: a pole at 0 with the sign of the zero, NaN at the negative integers.
    return jnp.where(x == 0, jnp.copysign(jnp.inf, -x), jsp.digamma(x))


def _entr(x: Any) -> Any:
    positive = -x * jnp.log(jnp.where(x > 0, x, 1))
    return jnp.where(jnp.isnan(x), x, jnp.where(x > 0, positive, jnp.where(x == 0, 0, -jnp.inf)))


def _erfcx(x: Any) -> Any:
    return jnp.exp(x * x) * jsp.erfc(x)


def _lgamma(x: Any) -> Any:
    return jnp.where(jnp.isinf(x), jnp.inf, jsp.gammaln(x))


_FUNCTIONS: dict[str, Function] = {
    "erf": jsp.erf,
    "erfc": jsp.erfc,
    "erfinv": jsp.erfinv,
    "lgamma": _lgamma,
    "digamma": _digamma,
    "i0": jsp.i0,
    "special_i0e": jsp.i0e,
    "special_i1": jsp.i1,
    "special_i1e": jsp.i1e,
    "special_ndtr": jsp.ndtr,
    "special_ndtri": jsp.ndtri,
    "special_log_ndtr": jsp.log_ndtr,
    "special_entr": _entr,
}

for _name, _fn in _FUNCTIONS.items():
    floating(f"aten.{_name}.default", _fn)


@lower("aten.polygamma.default")
def polygamma(ctx: Ctx, n: int, self: Any) -> Any:
    (x,) = float_opmath(ctx, self)
    return _digamma(x) if n == 0 else jsp.polygamma(jnp.asarray(n, x.dtype), x)


@lower(
    "aten.special_zeta.default",
    "aten.special_zeta.self_scalar",
    "aten.special_zeta.other_scalar",
)
def zeta(ctx: Ctx, self: Any, other: Any) -> Any:
    return jsp.zeta(*float_opmath(ctx, self, other))


@lower("aten.igamma.default")
def igamma(ctx: Ctx, self: Any, other: Any) -> Any:
    return jsp.gammainc(*float_opmath(ctx, self, other))


@lower("aten.igammac.default")
def igammac(ctx: Ctx, self: Any, other: Any) -> Any:
    return jsp.gammaincc(*float_opmath(ctx, self, other))


@lower("aten.logit.default")
def logit(ctx: Ctx, self: Any, eps: Any = None) -> Any:
    (x,) = float_opmath(ctx, self)
    if eps is not None:
        eps = scalar(eps, x.dtype)
        x = jnp.clip(x, eps, 1 - eps)
    return jnp.log(x / (1 - x))


@lower("aten.logit_backward.default")
def logit_backward(ctx: Ctx, grad_output: Any, self: Any, eps: Any = None) -> Any:
    grad, x = float_opmath(ctx, grad_output, self)
    grad_input = grad / (x * (1 - x))
    if eps is None:
        return jnp.where((x < 0) | (x > 1), jnp.nan, grad_input)
    eps = scalar(eps, x.dtype)
    return jnp.where((x < eps) | (x > 1 - eps), 0, grad_input)
