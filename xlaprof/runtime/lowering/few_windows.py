"""Convolutions of few windows by a large kernel, as products of matrices.

XLA's convolutions on a CPU first bring the kernel into an order of their own, element by element. That takes many times
longer than the sums themselves where the kernel is larger than all the windows that it is laid on, as in the last
stages of a ResNet. There the windows are copied instead, and the kernel stays as it lies in memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from .registry import Array, Ints


class Geometry(NamedTuple):
    """Of a plain convolution: one number per spatial dimension, padding before and after."""

    stride: Ints
    pads: tuple[tuple[int, int], ...]
    dilation: Ints
    groups: int

    def windows(self, spatial: Ints, kernel: Ints) -> list[int]:
        """How many there are along each dimension of an input."""
        sizes = zip(spatial, self.pads, self.dilation, kernel, self.stride, strict=True)
        return [(n + sum(pad) - d * (k - 1) - 1) // s + 1 for n, pad, d, k, s in sizes]

    def covered(self, windows: Ints, kernel: Ints) -> list[int]:
        """The smallest input that has so many windows."""
        sizes = zip(windows, self.stride, self.pads, self.dilation, kernel, strict=True)
        return [(n - 1) * s - sum(pad) + d * (k - 1) + 1 for n, s, pad, d, k in sizes]


def are_few(batch: int, windows: Sequence[int], weight: Array, geometry: Geometry) -> bool:
    """Are the windows no larger than the kernel ``weight``, ``(out, in, *kernel)``, or single elements?"""
    count = batch * math.prod(windows)
    return geometry.groups == 1 and count > 0 and (count <= weight.shape[0] or math.prod(weight.shape[2:]) == 1)


def plain(x: Array, weight: Array, geometry: Geometry) -> Array:
    """``x`` is ``(N, in, *spatial)``; gives ``(N, out, *windows)``."""
    windows = _windows(x, weight.shape[2:], geometry)
    product = jnp.einsum("ok,kp->op", _matrix(weight), _columns(windows), precision=lax.Precision.HIGHEST)
    return product.reshape(-1, x.shape[0], *windows.shape[3:]).swapaxes(0, 1)


def transposed(grad: Array, weight: Array, geometry: Geometry) -> Array:
    """The transpose of :func:`plain` in its input, the smallest one that ``(N, out, *windows)`` has come from."""
    batch, outputs, *windows = grad.shape
    kernel = weight.shape[2:]
    rows = grad.swapaxes(0, 1).reshape(outputs, -1)
    columns = jnp.einsum("ok,op->kp", _matrix(weight), rows, precision=lax.Precision.HIGHEST)
    columns = columns.reshape(weight.shape[1], -1, batch, *windows).transpose(2, 0, 1, *range(3, grad.ndim + 1))
    shape = (batch, weight.shape[1], *geometry.covered(windows, kernel))
    of_input: tuple[Array] = jax.linear_transpose(
        lambda x: _windows(x, kernel, geometry), jax.ShapeDtypeStruct(shape, grad.dtype)
    )(columns)
    return of_input[0]


def of_weight(x: Array, grad: Array, weight: Array, geometry: Geometry) -> Array:
    """The gradient of :func:`plain` in its weight, where the gradient in its result is ``grad``."""
    columns = _columns(_windows(x, weight.shape[2:], geometry))
    rows = grad.swapaxes(0, 1).reshape(weight.shape[0], -1)
    product = jnp.einsum("op,kp->ok", rows, columns, precision=lax.Precision.HIGHEST)
    return product.reshape(weight.shape)


def seen(x: Array, kernel: Ints, geometry: Geometry) -> Iterator[Array]:
    """What each element of the kernel is laid on, one after the other: ``(N, in, *windows)``."""
    windows = geometry.windows(x.shape[2:], kernel)
    x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0)] * 2 + [(*pad, 0) for pad in geometry.pads])
    for place in itertools.product(*map(range, kernel)):
        start = [k * d for k, d in zip(place, geometry.dilation, strict=True)]
        limit = [b + (n - 1) * s + 1 for b, n, s in zip(start, windows, geometry.stride, strict=True)]
        yield lax.slice(x, [0, 0, *start], [*x.shape[:2], *limit], [1, 1, *geometry.stride])


def _windows(x: Array, kernel: Ints, geometry: Geometry) -> Array:
    """``(N, in, elements of the kernel, *windows)``."""
    return jnp.stack(list(seen(x, kernel, geometry)), 2)


def _columns(windows: Array) -> Array:
    """One column per window."""
    inputs, elements = windows.shape[1:3]
    return jnp.moveaxis(windows, 0, 2).reshape(inputs * elements, -1)


def _matrix(weight: Array) -> Array:
    return weight.reshape(weight.shape[0], -1)
