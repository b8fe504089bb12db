"""Running reductions along one dimension."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from .reduction import accumulable
from .registry import Ctx, direct_table, float_opmath, lower


def _running_total(name: str, fn: Any) -> None:
    @lower(name)
    def total(ctx: Ctx, self: Any, dim: int, dtype: Any = None) -> Any:
        x = accumulable(ctx, self)
        return fn(x, dim) if x.ndim else x


_running_total("aten.cumsum.default", jnp.cumsum)
_running_total("aten.cumprod.default", jnp.cumprod)


@lower("aten.logcumsumexp.default")
def logcumsumexp(ctx: Ctx, self: Any, dim: int) -> Any:
    (x,) = float_opmath(ctx, self)
    return lax.cumlogsumexp(x, dim % x.ndim) if x.ndim else x


def _running(x: Any, dim: int, better: Any) -> tuple[Any, Any]:
    """Running extremum and its index: the last of equal ones; NaN stays to the end, as in PyTorch."""
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int64)

    def combine(left: Any, right: Any) -> Any:
        (a, i), (b, j) = left, right
        take = (b != b) | (better(b, a) & (a == a))
        return jnp.where(take, b, a), jnp.where(take, j, i)

    axis = dim % x.ndim
    values, where = lax.associative_scan(combine, (x, lax.broadcasted_iota(jnp.int64, x.shape, axis)), axis=axis)
    return values, where


direct_table(
    {
        "cummax": lambda x, dim: _running(x, dim, jnp.greater_equal),
        "cummin": lambda x, dim: _running(x, dim, jnp.less_equal),
    }
)
