"""Running reductions along one dimension."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from xlaprof.runtime.lowering.reduction import accumulable
from xlaprof.runtime.lowering.registry import Ctx, float_opmath, lower


@lower("aten.cumsum.default")
def cumsum(ctx: Ctx, self: Any, dim: int, dtype: Any = None) -> Any:
    x = accumulable(ctx, self)
    return jnp.cumsum(x, dim) if x.ndim else x


@lower("aten.cumprod.default")
def cumprod(ctx: Ctx, self: Any, dim: int, dtype: Any = None) -> Any:
    x = accumulable(ctx, self)
    return jnp.cumprod(x, dim) if x.ndim else x


@lower("aten.logcumsumexp.default")
def logcumsumexp(ctx: Ctx, self: Any, dim: int) -> Any:
    (x,) = float_opmath(ctx, self)
    return lax.cumlogsumexp(x, dim % x.ndim) if x.ndim else x


@lower("aten.cummax.default")
def cummax(ctx: Ctx, self: Any, dim: int) -> Any:
    return _running(self, dim, jnp.greater_equal)


@lower("aten.cummin.default")
def cummin(ctx: Ctx, self: Any, dim: int) -> Any:
    return _running(self, dim, jnp.less_equal)


def _running(x: Any, dim: int, better: Any) -> tuple[Any, Any]:
    """Running extremum and its place: the last of equal ones, and NaN once met stays, as in PyTorch."""
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int64)

    def combine(left: Any, right: Any) -> Any:
        (a, i), (b, j) = left, right
        take = (b != b) | (better(b, a) & (a == a))
        return jnp.where(take, b, a), jnp.where(take, j, i)

    axis = dim % x.ndim
    values, where = lax.associative_scan(combine, (x, lax.broadcasted_iota(jnp.int64, x.shape, axis)), axis=axis)
    return values, where
