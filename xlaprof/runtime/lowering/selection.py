"""Selections of a given size: ``dynamic_size_ops`` records them once it has read the size.

Most are not in the table, because the ATen overloads have no argument for the size.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from .registry import Array, Ctx, MaybeArray, lower


def positions(ctx: Ctx, mask: Array, size: int, fill: int = 0) -> Array:
    """Where ``mask``, flattened, is not zero: i64[size], in order, and ``fill`` where there are no more.

    Each such element knows its rank among them, and writes its place at that: one scan and one scatter.
    """
    chosen = (mask != 0).reshape(-1)
    dtype = jnp.int32 if 2 * chosen.size < 2**31 else jnp.int64
    place = lax.iota(dtype, chosen.size)
    rank = jnp.cumsum(chosen, dtype=dtype) - 1
    # Elements not chosen write past the end, each to its own place, so that no two write to the same one.
    return (
        jnp.full(size, fill, jnp.int64)
        .at[jnp.where(chosen, rank, size + place)]
        .set(place.astype(jnp.int64), mode="drop", unique_indices=True)
    )


def coordinates(ctx: Ctx, mask: Array, size: int, fill: int = 0) -> Array:
    """The same positions as i64[size, mask.ndim]: the operator ``nonzero``."""
    if mask.ndim == 0 or mask.size == 0:
        return jnp.full((size, mask.ndim), fill, jnp.int64)
    places = positions(ctx, mask, size, mask.size)
    found = jnp.stack(jnp.unravel_index(places, mask.shape), axis=1)
    return jnp.where(places[:, None] < mask.size, found, fill)


@lower("aten.nonzero_static.default")
def nonzero_static(ctx: Ctx, self: Array, *, size: int, fill_value: int = -1) -> Array:
    return coordinates(ctx, self, size, fill_value)


def repeated(ctx: Ctx, repeats: Array, size: int) -> Array:
    """Each position of ``repeats`` (not negative) as often as its value says: [size], of the same dtype."""
    return jnp.repeat(lax.iota(repeats.dtype, repeats.size), repeats, total_repeat_length=size)


def bincount(ctx: Ctx, self: Array, weights: MaybeArray, size: int) -> Array:
    """How often, or with what sum of weights, each number below ``size`` occurs in ``self`` (not negative)."""
    dtype = ctx.out[0].jax
    summands = jnp.ones(self.shape, dtype) if weights is None else weights.astype(dtype)
    return jnp.zeros(size, dtype).at[self].add(summands, mode="drop")


def row_order(ctx: Ctx, rows: Array) -> Array:
    """The order i64[n] that sorts ``rows`` [n, m] lexicographically; equal rows keep theirs.

    Stable sorts by one column after the other, the last column first.
    """

    def by_column(order: Array, column: Array) -> tuple[Array, None]:
        return lax.sort((column[order], order), num_keys=1, is_stable=True)[1], None

    order, _ = lax.scan(by_column, lax.iota(jnp.int64, rows.shape[0]), rows.T, reverse=True)
    return order
