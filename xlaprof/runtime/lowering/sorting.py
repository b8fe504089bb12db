"""Sorting and order statistics. NaN counts as the largest value; equal values keep their order."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from .registry import Array, Ctx, direct_table, is_floating, lower


def _sorted(x: Array, dim: int, descending: bool) -> tuple[Array, Array]:
    """``x`` in order along ``dim`` and where each value came from, stable in both directions."""
    place = lax.broadcasted_iota(jnp.int64, x.shape, dim)
    if not descending:
        values, indices = lax.sort((x, place), dimension=dim, num_keys=1, is_stable=True)
        return values, indices
    # Sorting the reversed input upwards and reversing the result leaves equal values in their first order.
    values, indices = _sorted(jnp.flip(x, dim), dim, False)
    return jnp.flip(values, dim), x.shape[dim] - 1 - jnp.flip(indices, dim)


def sort(x: Array, dim: int = -1, descending: bool = False, stable: bool | None = None) -> tuple[Array, Array]:
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int64)
    return _sorted(x, dim % x.ndim, descending)


direct_table(
    {
        "sort sort.stable": sort,
        "argsort argsort.stable": lambda *args, **kwargs: sort(*args, **kwargs)[1],
        "msort": lambda x: sort(x, 0)[0],
    }
)


@lower("aten.topk.default")
def topk(
    ctx: Ctx, self: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Array, Array]:
    x = jnp.moveaxis(jnp.atleast_1d(self), dim, -1)
    if is_floating(x):
        x = jnp.where(x != x, jnp.nan, x)  # XLA's order tells NaNs of either sign apart
    # The smallest are the largest of what grows as the values fall: for integers the complement, which, unlike
    # the negative, exists for each of them.
    values, indices = lax.top_k(x if largest else _reversed(x), k)
    values = values if largest else _reversed(values)
    return tuple(jnp.moveaxis(a, -1, dim).reshape(ctx.out[0].shape) for a in (values, indices))  # type: ignore[return-value]


def _reversed(x: Array) -> Array:
    return -x if is_floating(x) else ~x


@lower("aten.kthvalue.default")
def kthvalue(ctx: Ctx, self: Array, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
    values, indices = sort(jnp.atleast_1d(self), dim)
    shape = ctx.out[0].shape
    return tuple(lax.index_in_dim(a, k - 1, dim).reshape(shape) for a in (values, indices))  # type: ignore[return-value]


@lower("aten.mode.default")
def mode(ctx: Ctx, self: Array, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
    """The smallest of the most frequent values, and the place of its last occurrence."""
    x, axis = jnp.atleast_1d(self), dim % max(self.ndim, 1)
    values, places = _sorted(x, axis, False)
    values, places = jnp.moveaxis(values, axis, -1), jnp.moveaxis(places, axis, -1)
    n = values.shape[-1]
    ends = jnp.concatenate([values[..., 1:] != values[..., :-1], jnp.ones((*values.shape[:-1], 1), jnp.bool_)], -1)
    # how far each end of a run is from the end of the run before
    number = jnp.arange(n)
    before = lax.cummax(jnp.where(ends, number, -1), axis=values.ndim - 1)
    before = jnp.concatenate([jnp.full((*values.shape[:-1], 1), -1), before[..., :-1]], -1)
    best = jnp.argmax(jnp.where(ends, number - before, 0), -1)[..., None]
    shape = ctx.out[0].shape
    return tuple(jnp.take_along_axis(a, best, -1).reshape(shape) for a in (values, places))  # type: ignore[return-value]
