"""A piece of a tensor put back in its place: into a copy of the whole, or into zeros (the gradient of a view)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from .registry import Ctx, lower


def _slice(size: int, dim: int, rank: int, start: int | None, end: int | None, step: int) -> tuple[Any, ...]:
    index: list[Any] = [slice(None)] * rank
    begin, stop, _ = slice(start, end, step).indices(size)  # clamps as PyTorch does
    index[dim] = slice(begin, max(begin, stop), step)
    return tuple(index)


@lower("aten.slice_scatter.default")
def slice_scatter(
    ctx: Ctx, self: Any, src: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    dim %= self.ndim
    return self.at[_slice(self.shape[dim], dim, self.ndim, start, end, step)].set(src.astype(self.dtype))


@lower("aten.slice_backward.default")
def slice_backward(ctx: Ctx, grad_output: Any, input_sizes: Any, dim: int, start: int, end: int, step: int) -> Any:
    dim %= len(input_sizes)
    if step == 1:
        # A pad, which XLA fuses; a scatter it does not.
        begin = slice(start, end).indices(input_sizes[dim])[0]
        widths = [(0, 0, 0)] * len(input_sizes)
        widths[dim] = (begin, input_sizes[dim] - begin - grad_output.shape[dim], 0)
        return lax.pad(grad_output, jnp.zeros((), grad_output.dtype), widths)
    return slice_scatter(ctx, jnp.zeros(input_sizes, grad_output.dtype), grad_output, dim, start, end, step)


@lower("aten.select_scatter.default")
def select_scatter(ctx: Ctx, self: Any, src: Any, dim: int, index: int) -> Any:
    return self.at[(slice(None),) * (dim % self.ndim) + (index,)].set(src.astype(self.dtype))


@lower("aten.select_backward.default")
def select_backward(ctx: Ctx, grad_output: Any, input_sizes: Any, dim: int, index: int) -> Any:
    dim %= len(input_sizes)
    index %= input_sizes[dim]
    return slice_backward(ctx, jnp.expand_dims(grad_output, dim), input_sizes, dim, index, index + 1, 1)


@lower("aten.diagonal_scatter.default")
def diagonal_scatter(ctx: Ctx, self: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    index: list[Any] = [slice(None)] * self.ndim
    steps = jnp.arange(src.shape[-1])
    # The diagonal is the last dimension of the piece, whatever dimensions it runs through.
    whole = jnp.moveaxis(self, (dim1, dim2), (-2, -1))
    index[-2:] = [steps + max(-offset, 0), steps + max(offset, 0)]
    return jnp.moveaxis(whole.at[tuple(index)].set(src.astype(self.dtype)), (-2, -1), (dim1, dim2))


@lower("aten.diagonal_backward.default")
def diagonal_backward(ctx: Ctx, grad_output: Any, input_sizes: Any, offset: int, dim1: int, dim2: int) -> Any:
    return diagonal_scatter(ctx, jnp.zeros(input_sizes, grad_output.dtype), grad_output, offset, dim1, dim2)


@lower("aten.unfold_backward.default")
def unfold_backward(ctx: Ctx, grad_in: Any, input_sizes: Any, dim: int, size: int, step: int) -> Any:
    if not input_sizes:
        return grad_in.reshape(())
    dim %= len(input_sizes)
    windows = jnp.moveaxis(grad_in, dim, -2)  # ..., window, place in it
    where = jnp.arange(windows.shape[-2])[:, None] * step + jnp.arange(size)
    rest = [n for d, n in enumerate(input_sizes) if d != dim]
    return jnp.moveaxis(jnp.zeros((*rest, input_sizes[dim]), grad_in.dtype).at[..., where].add(windows), -1, dim)


@lower("aten.unsafe_split.Tensor")
def split(ctx: Ctx, self: Any, split_size: int, dim: int = 0) -> Any:
    return split_with_sizes(ctx, self, [out.shape[dim] for out in ctx.out], dim)


@lower("aten.unsafe_split_with_sizes.default", "aten.split_with_sizes_copy.default")
def split_with_sizes(ctx: Ctx, self: Any, split_sizes: Any, dim: int = 0) -> Any:
    dim %= self.ndim
    ends = [sum(split_sizes[: i + 1]) for i in range(len(split_sizes))]
    return tuple(lax.slice_in_dim(self, end - n, end, axis=dim) for n, end in zip(split_sizes, ends, strict=True))
