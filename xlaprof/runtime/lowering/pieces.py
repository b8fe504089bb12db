"""A piece of a tensor put back in its place: into a copy of the whole, or into zeros (the gradient of a view)."""

from __future__ import annotations

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .registry import Ctx, direct_table, lower


def slice_backward(grad: Any, sizes: Any, dim: int, start: int | None, end: int | None, step: int) -> Any:
    """``grad``, rows ``start:end:step`` of ``sizes``, among zeros: a pad, which unlike a scatter XLA fuses."""
    dim %= len(sizes)
    begin, _, _ = slice(start, end, step).indices(sizes[dim])  # clamps as PyTorch does
    covered = max((grad.shape[dim] - 1) * step + 1, 0)
    widths = [(0, 0, 0)] * len(sizes)
    widths[dim] = (begin, sizes[dim] - begin - covered, step - 1)
    return lax.pad(grad, jnp.zeros((), grad.dtype), widths)


@lower("aten.slice_scatter.default")
def slice_scatter(
    ctx: Ctx, whole: Any, src: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    dim %= whole.ndim
    src = src.astype(whole.dtype)
    begin, _, _ = slice(start, end, step).indices(whole.shape[dim])
    if step == 1 and not ctx.writes_itself:
        return lax.dynamic_update_slice_in_dim(whole, src, begin, dim)
    written = np.zeros(whole.shape[dim], np.bool_)
    written[begin : begin + (src.shape[dim] - 1) * step + 1 : step] = True
    mask = written.reshape([-1 if d == dim else 1 for d in range(whole.ndim)])
    return jnp.where(mask, slice_backward(src, whole.shape, dim, start, end, step), whole)


@lower("aten.select_scatter.default")
def select_scatter(ctx: Ctx, whole: Any, src: Any, dim: int, index: int) -> Any:
    index %= whole.shape[dim]
    return slice_scatter(ctx, whole, jnp.expand_dims(src, dim), dim, index, index + 1)


def diagonal_scatter(whole: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    numbers = np.arange(src.shape[-1])
    rows, columns = numbers + max(-offset, 0), numbers + max(offset, 0)
    # The diagonal is the last dimension of the piece, whatever dimensions it runs through.
    last = jnp.moveaxis(whole, (dim1, dim2), (-2, -1)).at[..., rows, columns]
    return jnp.moveaxis(last.set(src.astype(whole.dtype), unique_indices=True), (-2, -1), (dim1, dim2))


def _select_backward(grad: Any, sizes: Any, dim: int, index: int) -> Any:
    dim %= len(sizes)
    index %= sizes[dim]
    return slice_backward(jnp.expand_dims(grad, dim), sizes, dim, index, index + 1, 1)


def _unfold_backward(grad: Any, sizes: Any, dim: int, size: int, step: int) -> Any:
    if not sizes:
        return grad.reshape(())
    dim %= len(sizes)
    windows = jnp.moveaxis(grad, dim, -2)  # ..., window, place in it
    where = jnp.arange(windows.shape[-2])[:, None] * step + jnp.arange(size)
    rest = [n for d, n in enumerate(sizes) if d != dim]
    return jnp.moveaxis(jnp.zeros((*rest, sizes[dim]), grad.dtype).at[..., where].add(windows), -1, dim)


def _split(x: Any, sizes: Any, dim: int = 0) -> Any:
    ends = itertools.accumulate(sizes)
    return tuple(lax.slice_in_dim(x, end - n, end, axis=dim % x.ndim) for n, end in zip(sizes, ends, strict=True))


direct_table(
    {
        "slice_backward": slice_backward,
        "select_backward": _select_backward,
        "diagonal_scatter": diagonal_scatter,
        "diagonal_backward": lambda grad, sizes, offset, dim1, dim2: diagonal_scatter(
            jnp.zeros(sizes, grad.dtype), grad, offset, dim1, dim2
        ),
        "unfold_backward": _unfold_backward,
        "unsafe_split_with_sizes split_with_sizes_copy": _split,
    }
)


@lower("aten.unsafe_split.Tensor")
def split(ctx: Ctx, self: Any, split_size: int, dim: int = 0) -> Any:
    return _split(self, [out.shape[dim] for out in ctx.out], dim)
