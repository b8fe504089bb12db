"""Reductions over consecutive pieces of one dimension, whose lengths are data."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .registry import Array, Ctx, MaybeArray, Unsupported, lower, wide

_EMPTY = {"sum": 0.0, "mean": 0.0, "max": -jnp.inf, "min": jnp.inf, "prod": 1.0}


class _Segments:
    """Which segment each element along the reduced dimension belongs to, over leading batch dimensions [..., size]."""

    def __init__(self, size: int, lengths: MaybeArray = None, offsets: MaybeArray = None, **unused: Any) -> None:
        if lengths is not None:
            ends = jnp.cumsum(lengths, -1)
            starts = ends - lengths
        elif offsets is not None:
            starts, ends = offsets[..., :-1], offsets[..., 1:]
        else:
            raise Unsupported("segments given neither by lengths nor by offsets")
        self.count = starts.shape[-1]
        self.lengths = ends - starts
        place = jnp.arange(size)
        flat = ends.reshape(-1, self.count)
        number = jax.vmap(lambda e: jnp.searchsorted(e, place, side="right"))(flat)
        number = number.reshape(*ends.shape[:-1], size)
        within = place >= jnp.take_along_axis(starts, jnp.minimum(number, max(self.count - 1, 0)), -1)
        #: ``count`` for elements of no segment
        self.number = jnp.where(within, number, self.count)

    def reduced(self, x: Array, reduce: str, initial: float) -> Array:
        """``x`` [batch..., size, rest...] folded into ``initial`` over each segment."""
        batch = self.number.ndim - 1
        result = jnp.full((*x.shape[:batch], self.count, *x.shape[batch + 1 :]), initial, x.dtype)
        at = result.at[self._where(batch)]
        fold: Any = {"sum": at.add, "mean": at.add, "max": at.max, "min": at.min, "prod": at.multiply}[reduce]
        folded: Array = fold(x, mode="drop")
        return folded

    def spread(self, y: Array) -> Array:
        """``y`` [batch..., count, rest...] at each element of the segments; 0 elsewhere."""
        batch = self.number.ndim - 1
        found: Array = y.at[self._where(batch)].get(mode="fill", fill_value=0)
        return found

    def _where(self, batch: int) -> tuple[Array, ...]:
        return (*(jnp.indices(self.number.shape, sparse=True)[:batch]), self.number)

    def size_like(self, y: Array) -> Array:
        return self.lengths.reshape(*self.lengths.shape, *(1,) * (y.ndim - self.lengths.ndim)).astype(y.dtype)


@lower("aten.segment_reduce.default", static=("initial",))
def segment_reduce(ctx: Ctx, data: Array, reduce: str, *, axis: int = 0, initial: Any = None, **pieces: Any) -> Array:
    segments = _Segments(data.shape[axis], **pieces)
    x = wide(data)
    start = _EMPTY[reduce] if initial is None else initial
    result = segments.reduced(x, reduce, start)
    if reduce == "mean":
        size = segments.size_like(result)
        result = jnp.where(size > 0, result / size, jnp.nan if initial is None else result)
    return result


@lower("aten._segment_reduce_backward.default", static=("initial",))
def segment_reduce_backward(
    ctx: Ctx, grad: Array, output: Array, data: Array, reduce: str, *, axis: int = 0, initial: Any = None, **pieces: Any
) -> Array:
    segments = _Segments(data.shape[axis], **pieces)
    x, grad, output = wide(data), wide(grad), wide(output)
    if reduce == "sum":
        return segments.spread(grad)
    if reduce == "mean":
        return segments.spread(grad / jnp.maximum(segments.size_like(grad), 1))
    if reduce in ("max", "min"):  # shared by equal ones
        chosen = (x == segments.spread(output)) | jnp.isnan(x)
        share = jnp.maximum(segments.reduced(chosen.astype(x.dtype), "sum", 0.0), 1)
        return jnp.where(chosen, segments.spread(grad / share), 0)
    # The product of the others: a quotient, except by zero and NaN.
    start = 1.0 if initial is None else initial
    zero, nan = x == 0, jnp.isnan(x)

    def others(marked: Array) -> Array:
        """How many other elements of the segment are."""
        count = marked.astype(x.dtype)
        return segments.spread(segments.reduced(count, "sum", 0.0)) - count

    rest = segments.spread(segments.reduced(jnp.where(zero | nan, 1, x), "prod", start))
    excluding = jnp.where(others(nan) > 0, jnp.nan, jnp.where(others(zero) > 0, 0, rest))
    share = jnp.where(zero | nan, excluding, segments.spread(output) / jnp.where(zero, 1, x))
    return segments.spread(grad) * share
