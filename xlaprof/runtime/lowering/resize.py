"""Resampling of images by separable filters: nearest, linear, cubic, and their antialiased forms.

Each dimension has a table of taps, made while lowering: which input positions an output position reads and with
what weights, in the float32 arithmetic of PyTorch's CPU kernels so that no position rounds differently.
The gradient is a resampling too, through the transposed tables.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .pooling import UNROLLED
from .registry import Array, Ctx, Ints, Unsupported, is_floating, lower, wide

Table = np.ndarray[Any, Any]


class _Taps(NamedTuple):
    """What each output position reads: both tables are ``(output size, taps)``."""

    position: Table
    #: ``None``: one tap of weight one
    weight: Table | None


#: (input size, output size, align_corners, scale given by the user, dtype computed in) -> taps
_Filter = Callable[[int, int, bool, float | None, Any], _Taps]


def _scale(size: int, out: int, align_corners: bool, given: float | None, real: Any) -> Any:
    if align_corners:
        return real((size - 1) / real(out - 1)) if out > 1 else real(0)
    return real(1.0 / given) if given is not None and given > 0 else real(size) / real(out)


def _nearest(size: int, out: int, align_corners: bool, given: float | None, real: Any, center: float = 0.0) -> _Taps:
    scale = _scale(size, out, False, given, np.float32)
    position = np.floor((np.arange(out, dtype=np.float32) + np.float32(center)) * scale).astype(np.int64)
    return _Taps(np.minimum(position, size - 1)[:, None], None)


_nearest_exact = functools.partial(_nearest, center=0.5)


def _source(size: int, out: int, align_corners: bool, given: float | None, real: Any) -> Table:
    """The input coordinate at the center of each output element."""
    scale, place = _scale(size, out, align_corners, given, real), np.arange(out).astype(real)
    source: Table = scale * place if align_corners else scale * (place + real(0.5)) - real(0.5)
    return source


def _linear(size: int, out: int, align_corners: bool, given: float | None, real: Any) -> _Taps:
    source = np.maximum(_source(size, out, align_corners, given, real), real(0))
    low = np.minimum(source.astype(np.int64), size - 1)
    share = np.clip(source - low.astype(real), real(0), real(1))
    return _Taps(np.stack([low, np.minimum(low + 1, size - 1)], 1), np.stack([1 - share, share], 1))


def _cubic_weight(x: Table, a: float) -> Table:
    """The cubic convolution kernel (Keys, 1981) with parameter ``a``."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _cubic(size: int, out: int, align_corners: bool, given: float | None, real: Any) -> _Taps:
    source = _source(size, out, align_corners, given, real)
    low = np.floor(source)
    reach = np.arange(-1, 3)
    weight = _cubic_weight((source - low)[:, None] - reach.astype(real), -0.75)
    return _Taps(np.clip(low.astype(np.int64)[:, None] + reach, 0, size - 1), weight.astype(real))


def _antialiased(
    kernel: Callable[[Table], Table],
    width: int,
    size: int,
    out: int,
    align_corners: bool,
    given: float | None,
    real: Any,
) -> _Taps:
    """A filter ``width`` wide, widened further where the image shrinks; weights add up to one."""
    scale = float(_scale(size, out, align_corners, given, real))
    support = width * 0.5 * max(scale, 1.0)
    center = scale * (np.arange(out) + 0.5)
    low = np.maximum((center - support + 0.5).astype(np.int64), 0)
    high = np.minimum((center + support + 0.5).astype(np.int64), size)
    position = low[:, None] + np.arange(math.ceil(support) * 2 + 1)
    weight = kernel((position - center[:, None] + 0.5) / max(scale, 1.0))
    weight = np.where(position < high[:, None], weight, 0)
    total = weight.sum(1, keepdims=True)
    return _Taps(np.minimum(position, size - 1), (weight / np.where(total == 0, 1, total)).astype(real))


def _triangle(x: Table) -> Table:
    weight: Table = np.maximum(1 - np.abs(x), 0)
    return weight


def _resample(x: Array, taps: Sequence[_Taps]) -> Array:
    """The trailing dimensions of ``x``, each through its taps."""
    for axis, (position, weight) in zip(range(x.ndim - len(taps), x.ndim), taps, strict=True):
        if weight is None:
            x = jnp.take(x, position[:, 0], axis=axis, mode="clip")
            continue
        weight = weight.astype(x.dtype).reshape(*weight.shape, *(1,) * (x.ndim - 1 - axis))
        if position.shape[1] <= UNROLLED:
            terms = (
                jnp.take(x, p, axis=axis, mode="clip") * w
                for p, w in zip(position.T, np.moveaxis(weight, 1, 0), strict=True)
            )
            x = functools.reduce(jnp.add, terms)
        else:
            x = (jnp.take(x, position, axis=axis, mode="clip") * weight).sum(axis + 1)
    return x


def _transposed(taps: _Taps, size: int) -> _Taps:
    """For each of ``size`` input positions, the outputs that read it: the taps of the gradient."""
    position, weight = taps
    weight = np.ones(position.shape, np.float32) if weight is None else weight
    order = np.argsort(position, axis=None, kind="stable")
    read = position.reshape(-1)[order]
    count = np.bincount(read, minlength=size)
    rank = np.arange(read.size) - np.repeat(np.cumsum(count) - count, count)
    readers = np.zeros((size, max(int(count.max(initial=0)), 1)), np.int64)
    shares = np.zeros(readers.shape, weight.dtype)
    readers[read, rank] = order // position.shape[1]
    shares[read, rank] = weight.reshape(-1)[order]
    return _Taps(readers, shares)


def _taps(
    filter_: _Filter, size: Ints, out: Ints, align_corners: bool, scales: Sequence[float | None], dtype: Any
) -> list[_Taps]:
    real = np.float64 if dtype == jnp.float64 else np.float32
    scales = tuple(scales) + (None,) * (len(out) - len(scales))
    return [filter_(n, o, align_corners, s, real) for n, o, s in zip(size, out, scales, strict=True)]


def _register(name: str, filter_: _Filter, dims: int, aligns: bool) -> None:
    """``name`` resamples the last ``dims`` dimensions; ``aligns``: it has an argument ``align_corners``."""

    def options(given: tuple[Any, ...]) -> tuple[bool, tuple[float | None, ...]]:
        return (given[0], given[1:]) if aligns else (False, given)

    @lower(f"aten.{name}.default")
    def forward(ctx: Ctx, self: Array, output_size: Any, *given: Any) -> Array:
        exact = filter_ in (_nearest, _nearest_exact)
        if not exact and not is_floating(self):
            raise Unsupported("interpolation of integers rounds in ways of its own")
        x = self if exact else wide(self)
        return _resample(x, _taps(filter_, self.shape[-dims:], ctx.out[0].shape[-dims:], *options(given), x.dtype))

    @lower(f"aten.{name}_backward.default")
    def backward(ctx: Ctx, grad_output: Array, output_size: Ints, input_size: Ints, *given: Any) -> Array:
        grad, sizes = wide(grad_output), input_size[-dims:]
        taps = _taps(filter_, sizes, grad.shape[-dims:], *options(given), grad.dtype)
        return _resample(grad, [_transposed(t, n) for t, n in zip(taps, sizes, strict=True)])


for _dims in (1, 2, 3):
    _register(f"upsample_nearest{_dims}d", _nearest, _dims, False)
    _register(f"_upsample_nearest_exact{_dims}d", _nearest_exact, _dims, False)
_register("upsample_linear1d", _linear, 1, True)
_register("upsample_bilinear2d", _linear, 2, True)
_register("upsample_trilinear3d", _linear, 3, True)
_register("upsample_bicubic2d", _cubic, 2, True)
_register("_upsample_bilinear2d_aa", functools.partial(_antialiased, _triangle, 2), 2, True)
_register("_upsample_bicubic2d_aa", functools.partial(_antialiased, lambda x: _cubic_weight(x, -0.5), 4), 2, True)
