"""Max and average pooling of one to three spatial dimensions, fixed and adaptive, and their gradients.

A maximum over a box is a maximum along each dimension in turn, so its work grows with the sum of the window's
sides and not with their product. Taking the dimensions from the last to the first keeps PyTorch's choice among
equal values: the first in row-major order, or the last NaN.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .registry import Array, Ctx, Ints, is_floating, lower, rounded, wide

Table = np.ndarray[Any, Any]

#: windows up to this wide are folded element by element
UNROLLED = 16


def transposed(forward: Callable[[Array], Array], shape: Ints, grad: Array) -> Array:
    """The gradient of the linear function ``forward`` at an input of ``shape`` and the dtype of ``grad``."""
    (result,) = jax.linear_transpose(forward, jnp.zeros(shape, grad.dtype))(grad)
    return result  # type: ignore[no-any-return]


class _Windows(NamedTuple):
    """The windows along one dimension: element ``[o, j]`` is the j-th input position of output ``o``."""

    position: Table
    #: does the window really reach that position, or is it padding?
    inside: Table

    def step(self, size: int) -> int | None:
        """The distance of each window from the next, if constant and only the ends of the input cut windows short."""
        start, reach = self.position[:, 0], self.position[0] - self.position[0, 0]
        step = int(start[1] - start[0]) if len(start) > 1 else 1
        even = start[0] + step * np.arange(len(start))[:, None] + reach
        within = (self.position >= 0) & (self.position < size)
        regular = step > 0 and np.array_equal(self.position, even) and np.array_equal(self.inside, within)
        return step if regular else None


def _fixed_windows(size: int, out: int, kernel: int, stride: int, padding: int, dilation: int) -> _Windows:
    position = np.arange(out)[:, None] * stride - padding + np.arange(kernel) * dilation
    return _Windows(position, (position >= 0) & (position < size))


def _adaptive_windows(size: int, out: int) -> _Windows:
    start = np.arange(out) * size // out
    end = -(-(np.arange(out) + 1) * size // out)
    position = start[:, None] + np.arange(int((end - start).max(initial=1)))
    return _Windows(position, position < end[:, None])


def _per_dim(values: int | Ints, dims: int) -> tuple[int, ...]:
    values = (values,) if isinstance(values, int) else tuple(values)
    return values * dims if len(values) == 1 else values


def _fold(
    arrays: tuple[Array, ...],
    windows: _Windows,
    axis: int,
    neutral: tuple[Any, ...],
    combine: Callable[[tuple[Array, ...], tuple[Array, ...]], tuple[Array, ...]],
) -> tuple[Array, ...]:
    """``arrays`` with each window along ``axis`` folded into one element by ``combine``."""
    position, inside = windows
    out, width = position.shape
    if out == 0 or width > UNROLLED:
        start = tuple(jnp.asarray(n, a.dtype) for n, a in zip(neutral, arrays, strict=True))
        reads = tuple(_read(a, position, inside, axis, n) for a, n in zip(arrays, neutral, strict=True))
        folded: tuple[Array, ...] = lax.reduce(reads, start, combine, (axis + 1,))
        return folded
    # XLA vectorises a chain of elementwise combinations, most of all of slices; a reduction of a gather it does not.
    size = arrays[0].shape[axis]
    step = windows.step(size)
    if step is None:
        each = (
            tuple(_read(a, position[:, j], inside[:, j], axis, n) for a, n in zip(arrays, neutral, strict=True))
            for j in range(width)
        )
        return functools.reduce(combine, each)
    edges = [(0, 0, 0)] * arrays[0].ndim
    edges[axis] = (max(-int(position.min()), 0), max(int(position.max()) + 1 - size, 0), 0)
    padded = [lax.pad(a, jnp.asarray(n, a.dtype), edges) for a, n in zip(arrays, neutral, strict=True)]
    starts = (int(p) + edges[axis][0] for p in position[0])
    reach = (out - 1) * step + 1
    return functools.reduce(
        combine, (tuple(lax.slice_in_dim(a, p, p + reach, step, axis) for a in padded) for p in starts)
    )


def _read(x: Array, position: Table, inside: Table, axis: int, outside: Any) -> Array:
    """``x`` at ``position`` along ``axis``, ``outside`` where that is not in the window."""
    taken = jnp.take(x, np.clip(position, 0, max(x.shape[axis] - 1, 0)), axis=axis, mode="clip")
    shape = (*inside.shape, *(1,) * (x.ndim - 1 - axis))
    return taken if inside.all() else jnp.where(inside.reshape(shape), taken, outside)


def _max_pool(x: Array, windows: Sequence[_Windows]) -> tuple[Array, Array]:
    """Maxima over windows of the trailing dimensions of ``x``, and their flat positions in those dimensions."""
    first = x.ndim - len(windows)
    spatial = x.shape[first:]
    lowest = -np.inf if is_floating(x) else np.iinfo(x.dtype).min
    index = np.int32 if math.prod(spatial) < 2**31 else np.int64
    nowhere = np.iinfo(index).max
    places = jnp.broadcast_to(jnp.arange(math.prod(spatial), dtype=index).reshape(spatial), x.shape)

    def better(a: tuple[Array, ...], b: tuple[Array, ...]) -> tuple[Array, ...]:
        (u, i), (v, j) = a, b
        u_nan, v_nan = u != u, v != v
        take_u = (u > v) | ((u == v) & (i < j)) | (u_nan & ~(v_nan & (i < j)))
        return jnp.where(take_u, u, v), jnp.where(take_u, i, j)

    for axis in range(x.ndim - 1, first - 1, -1):
        x, places = _fold((x, places), windows[axis - first], axis, (lowest, nowhere), better)
    return x, places


def _fixed(
    x: Array,
    out: Ints,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = (0,),
    dilation: Ints = (1,),
    ceil_mode: bool = False,
) -> list[_Windows]:
    """The windows that a pooling operator's arguments describe; ``out`` are the sizes of its results."""
    dims = len(out)
    kernel = _per_dim(kernel_size, dims)
    geometry = (kernel, _per_dim(stride or kernel, dims), _per_dim(padding, dims), _per_dim(dilation, dims))
    return [_fixed_windows(*g) for g in zip(x.shape[-dims:], out, *geometry, strict=True)]


def _unpool(dims: int, values: Array, indices: Array, spatial: Ints, add: bool) -> Array:
    """``values`` put (or added) at ``indices`` of zeros whose trailing dimensions are ``spatial``."""
    outer = values.shape[:-dims]
    planes = math.prod(outer)
    empty = jnp.zeros((planes, math.prod(spatial)), values.dtype)
    count = math.prod(values.shape[-dims:])
    at = empty.at[jnp.arange(planes)[:, None], indices.reshape(planes, count)]
    flat = values.reshape(planes, count)
    placed: Array = at.add(flat, mode="drop") if add else at.set(flat, mode="drop")
    return placed.reshape(*outer, *spatial)


def _divided(total: Array, divisor: Any) -> Array:
    if jnp.issubdtype(total.dtype, jnp.integer):
        return jax.lax.div(total, jnp.broadcast_to(jnp.asarray(divisor).astype(total.dtype), total.shape))
    return total / jnp.asarray(divisor).astype(total.dtype)


def _avg_pool(
    x: Array,
    out: Ints,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """Averages over windows of the trailing dimensions of ``x``; ``out`` are the sizes of the results."""
    dims = len(out)
    kernel = _per_dim(kernel_size, dims)
    stride, padding = _per_dim(stride or kernel, dims), _per_dim(padding, dims)
    spatial = x.shape[-dims:]
    geometry = list(zip(spatial, out, kernel, stride, padding, strict=True))
    # With ceil_mode the last window may reach beyond the padding, which counts for nothing.
    high = [max((o - 1) * s + k - n - p, 0) for n, o, k, s, p in geometry]
    outer = (1,) * (x.ndim - dims)
    total = lax.reduce_window(
        x,
        np.zeros((), x.dtype),
        lax.add,
        (*outer, *kernel),
        (*outer, *stride),
        [(0, 0)] * len(outer) + list(zip(padding, high, strict=True)),
    )
    if divisor_override is not None:
        return _divided(total, divisor_override)
    divisor = np.ones((), np.int64)
    for n, o, k, s, p in geometry:
        start = np.arange(o) * s - p
        end = np.minimum(start + k, n + p)
        count = end - start if count_include_pad else np.minimum(end, n) - np.maximum(start, 0)
        divisor = divisor[..., None] * np.maximum(count, 1)
    return _divided(total, divisor)


def _adaptive_avg_pool(x: Array, output_size: Ints) -> Array:
    count = np.ones((), np.int64)
    for axis, out in zip(range(x.ndim - len(output_size), x.ndim), output_size, strict=True):
        w = _adaptive_windows(x.shape[axis], out)
        if w.position.shape[1] <= UNROLLED:
            (x,) = _fold((x,), w, axis, (0,), lambda a, b: (a[0] + b[0],))
        else:  # a sum, which unlike a general reduction jax can transpose
            x = _read(x, w.position, w.inside, axis, 0).sum(axis + 1)
        count = count[..., None] * w.inside.sum(1)
    return x / count.astype(x.dtype)


def _register(dims: int) -> None:
    """The operators of ``dims`` spatial dimensions."""

    @lower(f"aten.max_pool{dims}d_with_indices.default")
    def max_pool(ctx: Ctx, self: Array, *geometry: Any) -> tuple[Array, Array]:
        return _max_pool(self, _fixed(self, ctx.out[0].shape[-dims:], *geometry))

    @lower(f"aten.adaptive_max_pool{dims}d.default")
    def adaptive_max_pool(ctx: Ctx, self: Array, output_size: Ints) -> tuple[Array, Array]:
        return _max_pool(self, [_adaptive_windows(*g) for g in zip(self.shape[-dims:], output_size, strict=True)])

    @lower(
        f"aten.max_pool{dims}d_with_indices_backward.default",
        f"aten.adaptive_max_pool{dims}d_backward.default",
        f"aten.fractional_max_pool{dims}d_backward.default",
    )
    def max_pool_backward(ctx: Ctx, grad_output: Array, self: Array, *geometry_then_indices: Any) -> Array:
        """Each gradient goes to the element that was the maximum; windows that overlap add up."""
        return _unpool(dims, wide(grad_output), geometry_then_indices[-1], self.shape[-dims:], add=True)

    @lower(f"aten.max_unpool{dims}d.default")
    def max_unpool(ctx: Ctx, self: Array, indices: Array, output_size: Ints, *geometry: Any) -> Array:
        return _unpool(dims, self, indices, output_size, add=False)

    @lower(f"aten.avg_pool{dims}d.default")
    def avg_pool(ctx: Ctx, self: Array, *geometry: Any) -> Array:
        return _avg_pool(wide(self), ctx.out[0].shape[-dims:], *geometry)

    @lower(f"aten.avg_pool{dims}d_backward.default")
    def avg_pool_backward(ctx: Ctx, grad_output: Array, self: Array, *geometry: Any) -> Array:
        out = grad_output.shape[-dims:]
        return transposed(lambda x: _avg_pool(x, out, *geometry), self.shape, wide(grad_output))

    @lower(f"aten._adaptive_avg_pool{dims}d.default")
    def adaptive_avg_pool(ctx: Ctx, self: Array, output_size: Ints) -> Array:
        return _adaptive_avg_pool(wide(self), ctx.out[0].shape[-dims:])

    @lower(f"aten._adaptive_avg_pool{dims}d_backward.default")
    def adaptive_avg_pool_backward(ctx: Ctx, grad_output: Array, self: Array) -> Array:
        out = grad_output.shape[-dims:]
        return transposed(lambda x: _adaptive_avg_pool(x, out), self.shape, wide(grad_output))


_register(2)
_register(3)


# -- fractional max pooling: windows whose places are drawn at random, per sample and channel --------------


def _starts(sample: Array, size: int, out: int, window: int) -> Array:
    """Where each of ``out`` windows begins: samples [...] -> [..., out]. PyTorch computes in the sample's dtype."""
    dtype = sample.dtype
    last = jnp.full((*sample.shape, 1), size - window)
    if out == 1:
        return last
    sample = wide(sample)[..., None]
    step = rounded(jnp.asarray((size - window) / (out - 1), sample.dtype), dtype)

    def at(x: Array) -> Array:
        return jnp.trunc(rounded(rounded(x, dtype) * step, dtype)).astype(jnp.int64)

    return jnp.concatenate([at(jnp.arange(out - 1) + sample) - at(sample), last], -1)


def _fractional_pool(ctx: Ctx, x: Array, kernel: Ints, output: Ints, samples: Array) -> tuple[Array, Array]:
    dims = len(kernel)
    spatial = x.shape[-dims:]
    batched = x.reshape(-1, x.shape[-dims - 1], *spatial)
    samples = samples[: batched.shape[0]].reshape(*batched.shape[:2], dims)  # there may be more than are used
    # PyTorch takes the last sample for the first of two dimensions, the first for the first of three.
    order = (1, 0) if dims == 2 else (0, 1, 2)
    flat = jnp.zeros((), jnp.int64)
    for d, (size, out, window) in enumerate(zip(spatial, output, kernel, strict=True)):
        start = _starts(samples[..., order[d]], size, out, window)
        place = start[..., None] + jnp.arange(window)  # N, C, out, window
        shape = [*place.shape[:2], *(1,) * (2 * dims)]
        shape[2 + d], shape[2 + dims + d] = out, window
        flat = flat * size + place.reshape(shape)
    planes = batched.shape[:2]  # none, maybe
    flat = flat.reshape(*planes, *output, math.prod(kernel))
    values = jnp.take_along_axis(
        batched.reshape(*planes, math.prod(spatial)),
        flat.reshape(*planes, math.prod(output) * math.prod(kernel)),
        axis=-1,
    ).reshape(flat.shape)
    # the first of equal values, or the last NaN
    nan = jnp.isnan(values)
    behind = values.shape[-1] - 1 - jnp.argmax(nan[..., ::-1], -1)
    best = jnp.where(nan.any(-1), behind, jnp.argmax(jnp.where(nan, -jnp.inf, values), -1))[..., None]
    out_shape = ctx.out[0].shape
    return tuple(jnp.take_along_axis(a, best, -1).reshape(out_shape) for a in (values, flat))  # type: ignore[return-value]


@lower("aten.fractional_max_pool2d.default", "aten.fractional_max_pool3d.default")
def fractional_max_pool(
    ctx: Ctx, self: Array, kernel_size: Ints, output_size: Ints, random_samples: Array
) -> tuple[Array, Array]:
    dims = 2 if len(kernel_size) == 2 else 3
    return _fractional_pool(ctx, self, tuple(kernel_size)[:dims], tuple(output_size), random_samples)
