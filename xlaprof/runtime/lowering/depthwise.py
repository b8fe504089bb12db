"""Depthwise convolutions: each channel has a kernel of its own, which is laid on nothing else.

There are no products of matrices in them, and XLA's convolutions on a CPU have no fast kernel for so many groups: they
took up to a hundred times as long as a sum over the elements of the kernel, which XLA fuses into one pass over the
windows.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax

from .few_windows import Geometry, seen
from .registry import Array, Ints

#: with more the sum is long to compile: 7 x 7 of a ConvNeXt are below, 31 x 31 are not
ELEMENTS = 64


def is_depthwise(weight: Array, geometry: Geometry) -> bool:
    """Has each of several groups one input channel, and a kernel of few elements?"""
    return geometry.groups > 1 and weight.shape[1] == 1 and 0 < math.prod(weight.shape[2:]) <= ELEMENTS


def plain(x: Array, weight: Array, geometry: Geometry, spread: Ints | None = None) -> Array:
    """``x`` is ``(N, in, *spatial)``, ``weight`` ``(out, 1, *kernel)``; gives ``(N, out, *windows)``.

    ``spread``: zeros go between the rows of ``x``, as in a transposed convolution.
    """
    spatial = x.ndim - 2
    if spread is not None:
        x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0)] * 2 + [(0, 0, s - 1) for s in spread])
    wide = _summed_in(x)
    kernels = weight.reshape(x.shape[1], -1, math.prod(weight.shape[2:]))  # (in, out / in, elements)
    total = sum(
        part[:, :, None].astype(wide) * kernels[..., i].reshape(*kernels.shape[:2], *(1,) * spatial).astype(wide)
        for i, part in enumerate(seen(x, weight.shape[2:], geometry))
    )
    assert not isinstance(total, int)  # there are elements
    return total.reshape(x.shape[0], weight.shape[0], *total.shape[3:]).astype(x.dtype)


def of_weight(x: Array, grad: Array, weight: Array, geometry: Geometry) -> Array:
    """The gradient of :func:`plain` in its weight, where the gradient in its result is ``grad``."""
    wide = _summed_in(x)
    grad = grad.reshape(x.shape[0], x.shape[1], -1, *grad.shape[2:]).astype(wide)
    over = (0, *range(3, grad.ndim))
    parts = [(part[:, :, None].astype(wide) * grad).sum(over) for part in seen(x, weight.shape[2:], geometry)]
    return jnp.stack(parts, -1).reshape(weight.shape).astype(weight.dtype)


def _summed_in(x: Array) -> jnp.dtype:
    """Half precision is summed up in single, as convolutions do."""
    return jnp.dtype(jnp.float32) if x.dtype.itemsize == 2 and jnp.issubdtype(x.dtype, jnp.floating) else x.dtype
