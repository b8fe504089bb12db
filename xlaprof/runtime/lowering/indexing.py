"""Reading and writing elements whose positions are data: indexing, gather, scatter, embedding, masks.

Positions out of range are an error in eager PyTorch. A compiled program cannot raise, so here, as on every
XLA device, a read is clamped to the nearest valid position and a write is dropped. Negative positions count
from the end in all of these operators, also in those where eager PyTorch refuses them.

Where several writes hit one element without accumulating, the last one wins on CPU, as in PyTorch; on an
accelerator any of them may.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .registry import Array, Ctx, Ints, MaybeArray, Unsupported, direct_table, lower, scalar


def _is_mask(index: MaybeArray) -> bool:
    return index is not None and index.dtype in (jnp.bool_, jnp.uint8)


def _given(indices: Sequence[MaybeArray]) -> list[tuple[int, Array]]:
    """``(dimension, index)`` of the entries that are not ``None``, brought to one shape."""
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if any(_is_mask(i) for _, i in given):
        raise Unsupported("indexing with a mask gives a result whose shape depends on data")
    return list(zip([d for d, _ in given], jnp.broadcast_arrays(*[i for _, i in given]), strict=True))


def _fronted(x: Array, given: Sequence[tuple[int, Array]]) -> tuple[list[int], int]:
    """How to bring the indexed dimensions of ``x`` to the front, and where the index's own dimensions belong.

    They stay in place of adjacent indexed dimensions and come first otherwise, as in NumPy.
    """
    dims = [d for d, _ in given]
    adjacent = dims == list(range(dims[0], dims[0] + len(dims)))
    return dims + [d for d in range(x.ndim) if d not in dims], dims[0] if adjacent else 0


@lower("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(ctx: Ctx, self: Array, indices: Sequence[MaybeArray]) -> Array:
    given = _given(indices)
    if not given:
        return self
    order, place = _fronted(self, given)
    taken = self.transpose(order).at[tuple(i for _, i in given)].get(mode="clip")
    width = given[0][1].ndim
    return jnp.moveaxis(taken, range(width), range(place, place + width))


@lower("aten.index_put.default", "aten._unsafe_index_put.default", "aten._index_put_impl.default")
def index_put(
    ctx: Ctx, self: Array, indices: Sequence[MaybeArray], values: Array, accumulate: bool = False, unsafe: bool = False
) -> Array:
    values = jnp.asarray(values).astype(self.dtype)
    if any(_is_mask(i) for i in indices):
        return _mask_put(self, indices, values, accumulate)
    given = _given(indices)
    if not given:
        return self + values if accumulate else jnp.broadcast_to(values, self.shape)
    order, place = _fronted(self, given)
    shape, width = given[0][1].shape, given[0][1].ndim
    kept = [self.shape[d] for d in order[len(given) :]]
    values = jnp.broadcast_to(values, (*kept[:place], *shape, *kept[place:]))
    values = jnp.moveaxis(values, range(place, place + width), range(width))
    at = self.transpose(order).at[tuple(i for _, i in given)]
    written = _accumulate(at, values) if accumulate else at.set(values, mode="drop")
    return written.transpose([order.index(d) for d in range(self.ndim)])


def _accumulate(at: Any, values: Array) -> Array:
    # a sum of booleans is their disjunction in PyTorch
    result: Array = (at.max if values.dtype == jnp.bool_ else at.add)(values, mode="drop")
    return result


def _mask_put(self: Array, indices: Sequence[MaybeArray], values: Array, accumulate: bool) -> Array:
    """``self[:, mask] = values``: each element knows its rank among those selected, so no shape depends on data."""
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if len(given) > 1:
        raise Unsupported("a mask together with another index selects a number of elements that depends on data")
    first, mask = given[0]
    mask = mask.astype(jnp.bool_)
    after = self.shape[first + mask.ndim :]
    if values.ndim > len(after) and values.shape[-1 - len(after)] != 1:
        if values.size == 0:
            return self
        axis = values.ndim - 1 - len(after)
        rank = jnp.cumsum(mask.reshape(-1)) - 1
        values = jnp.take(values, rank, axis=axis, mode="clip")
        values = values.reshape(*values.shape[:axis], *mask.shape, *after)
    elif values.ndim > len(after):
        axis = values.ndim - 1 - len(after)
        values = values.reshape(*values.shape[:axis], *(1,) * mask.ndim, *values.shape[axis + 1 :])
    selected = mask.reshape(*mask.shape, *(1,) * len(after))
    return jnp.where(selected, self + values if accumulate else values, self)


@lower("aten.gather.default")
def gather(ctx: Ctx, self: Array, dim: int, index: Array, *, sparse_grad: bool = False) -> Array:
    if index.size == 0:  # of any number of dimensions
        return jnp.zeros(index.shape, self.dtype)
    if index.ndim == 0 or self.ndim == 0:
        return jnp.take(self.reshape(-1), index, mode="clip").reshape(index.shape)
    dim %= self.ndim
    within = tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(index.shape))
    return jnp.take_along_axis(self[within], _wrap(index, self.shape[dim]), axis=dim, mode="clip")


def _wrap(index: Array, size: int) -> Array:
    return jnp.where(index < 0, index + size, index)


#: (array, function from an array to its ``.at[...]``, values) -> the array with the values written
_Write = Callable[[Array, Callable[[Array], Any], Array], Array]


def _set(x: Array, at: Callable[[Array], Any], values: Array) -> Array:
    return at(x).set(values, mode="drop")  # type: ignore[no-any-return]


def _scatter(self: Array, dim: int, index: Array, src: Any, write: _Write) -> Array:
    """``write(self, at, src)``: ``at(array)`` are the elements that ``index`` names along ``dim``."""
    if index.size == 0:
        return self
    whole, index, src = jnp.atleast_1d(self), jnp.atleast_1d(index), jnp.asarray(src).astype(self.dtype)
    src = jnp.broadcast_to(src, index.shape) if src.ndim == 0 else src[tuple(slice(n) for n in index.shape)]
    position = list(jnp.indices(index.shape, sparse=True))
    position[dim % whole.ndim] = index
    return write(whole, lambda x: x.at[tuple(position)], src).reshape(self.shape)


def _add(x: Array, at: Callable[[Array], Any], values: Array) -> Array:
    return _accumulate(at(x), values)


def _folding(reduce: str, include_self: bool = True) -> _Write:
    reduce = {"add": "sum", "multiply": "prod"}.get(reduce, reduce)
    return lambda x, at, values: _reduce_at(x, at, values, reduce, include_self)


def _reduce_at(self: Array, at: Any, src: Array, reduce: str, include_self: bool) -> Array:
    """``self`` with ``src`` folded into the elements that ``at(array)`` names."""
    if not include_self:
        untouched = at(jnp.ones(self.shape, jnp.bool_)).set(False, mode="drop")
        self = jnp.where(untouched, self, _identity(reduce, self.dtype))
    if reduce in ("sum", "mean"):
        total = _accumulate(at(self), src)
        if reduce == "sum":
            return total
        count = at(jnp.full(self.shape, int(include_self), jnp.int64)).add(1, mode="drop")
        count = jnp.maximum(count, 1).astype(self.dtype)
        return total // count if jnp.issubdtype(self.dtype, jnp.integer) else total / count
    if reduce == "prod":
        # a product of booleans is their conjunction
        product: Array = (at(self).min if self.dtype == jnp.bool_ else at(self).multiply)(src, mode="drop")
        return product
    if reduce in ("amax", "amin"):
        extreme: Array = getattr(at(self), reduce[1:])(src, mode="drop")
        return extreme
    raise Unsupported(f"reduce={reduce!r}")


def _identity(reduce: str, dtype: Any) -> Any:
    if reduce in ("sum", "mean"):
        return jnp.zeros((), dtype)
    if reduce == "prod":
        return jnp.ones((), dtype)
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.asarray(-jnp.inf if reduce == "amax" else jnp.inf, dtype)
    if dtype == jnp.bool_:
        return jnp.asarray(reduce != "amax")
    return jnp.asarray(np.iinfo(dtype).min if reduce == "amax" else np.iinfo(dtype).max, dtype)


def _along(whole: Array, dim: int, index: Array) -> tuple[Any, ...]:
    """The positions ``index`` along ``dim`` of ``whole``, and all of its other dimensions."""
    return (*(slice(None),) * (dim % whole.ndim), index.reshape(-1))


def _write_along(self: Array, dim: int, index: Array, source: Array, write: _Write) -> Array:
    """``write(self, at, source)``: ``at(array)`` are the slices that ``index`` names along ``dim``."""
    whole = jnp.atleast_1d(self)
    where = _along(whole, dim, index)
    return write(whole, lambda x: x.at[where], jnp.atleast_1d(source)).reshape(self.shape)


@lower("aten.index_select.default")
def index_select(ctx: Ctx, self: Array, dim: int, index: Array) -> Array:
    whole = jnp.atleast_1d(self)
    return whole.at[_along(whole, dim, index)].get(mode="clip").reshape(ctx.out[0].shape)


def _index_add(x: Array, dim: int, index: Array, source: Array, *, alpha: Any = 1) -> Array:
    return _write_along(x, dim, index, source.astype(x.dtype) * scalar(alpha, x.dtype), _add)


def _reducing(write: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, dim, index, source, reduce, **option: write(x, dim, index, source, _folding(reduce, **option))


direct_table(
    {
        "scatter.src scatter.value": lambda x, dim, index, src: _scatter(x, dim, index, src, _set),
        "scatter_add": lambda x, dim, index, src: _scatter(x, dim, index, src, _add),
        "scatter.reduce scatter.value_reduce scatter_reduce.two": _reducing(_scatter),
        "index_copy": lambda x, dim, index, source: _write_along(x, dim, index, source, _set),
        "index_add": _index_add,
        "index_reduce": _reducing(_write_along),
        "index_fill.int_Scalar index_fill.int_Tensor": lambda x, dim, index, value: _write_along(
            x, dim, index, scalar(value, x.dtype), _set
        ),
        "take": lambda x, index: jnp.take(x.reshape(-1), _wrap(index, x.size), mode="clip"),
        "masked_fill.Scalar masked_fill.Tensor": lambda x, mask, value: jnp.where(
            mask.astype(jnp.bool_), scalar(value, x.dtype), x
        ),
    }
)


@lower("aten.put.default")
def put(ctx: Ctx, self: Array, index: Array, source: Array, accumulate: bool = False) -> Array:
    if index.size != source.size or (index.size and not self.size):
        raise Unsupported(f"put: {source.size} elements at {index.size} places of {self.size}")
    at, source = self.reshape(-1).at[index.reshape(-1)], source.reshape(-1)
    return (_accumulate(at, source) if accumulate else at.set(source, mode="drop")).reshape(self.shape)


@lower("aten.masked_scatter.default")
def masked_scatter(ctx: Ctx, self: Array, mask: Array, source: Array) -> Array:
    self, mask = jnp.broadcast_arrays(self, mask)
    if source.size == 0:
        return self
    rank = jnp.cumsum(mask.reshape(-1)) - 1
    return jnp.where(mask, jnp.take(source.reshape(-1), rank, mode="clip").reshape(self.shape), self)


@lower("aten.masked_scatter_backward.default")
def masked_scatter_backward(ctx: Ctx, grad_output: Array, mask: Array, sizes: Ints) -> Array:
    grad_output, mask = (a.reshape(-1) for a in jnp.broadcast_arrays(grad_output, mask))
    empty = jnp.zeros(ctx.out[0].shape, grad_output.dtype)
    rank = jnp.where(mask, jnp.cumsum(mask) - 1, empty.size)
    return empty.reshape(-1).at[rank].set(grad_output, mode="drop").reshape(empty.shape)


@lower("aten.repeat_interleave.Tensor")
def repeat_interleave(ctx: Ctx, repeats: Array, *, output_size: int | None = None) -> Array:
    if output_size is None:
        raise Unsupported("repeat_interleave without output_size gives a result whose shape depends on data")
    return jnp.repeat(jnp.arange(repeats.size), repeats, total_repeat_length=output_size)


@lower("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def searchsorted(
    ctx: Ctx, sorted_sequence: Array, self: Any, *, right: bool = False, side: str | None = None, **options: Any
) -> Array:
    sorter = options.get("sorter")
    if sorter is not None:
        sorted_sequence = jnp.take_along_axis(sorted_sequence, sorter, axis=-1)
    self = jnp.asarray(self)
    dtype = jnp.promote_types(sorted_sequence.dtype, self.dtype)
    sequence, values = sorted_sequence.astype(dtype), self.astype(dtype)
    edge = "right" if right or side == "right" else "left"
    if sequence.ndim == 1:
        return jnp.searchsorted(sequence, values, side=edge)
    rows = prod(sequence.shape[:-1])  # none, maybe
    flat = jax.vmap(lambda s, v: jnp.searchsorted(s, v, side=edge))(
        sequence.reshape(rows, sequence.shape[-1]), values.reshape(rows, values.shape[-1])
    )
    return flat.reshape(values.shape)


@lower("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(ctx: Ctx, self: Any, boundaries: Array, *, out_int32: bool = False, right: bool = False) -> Array:
    return searchsorted(ctx, boundaries, self, right=right)
