"""Depthwise convolutions: each channel has a kernel of its own, which is laid on nothing else.

There are no products of matrices in them, and XLA's convolutions on a CPU have no fast kernel for so many groups: they
took up to a hundred times as long as a sum over the elements of the kernel, which XLA fuses into one pass over the
windows.
"""

from __future__ import annotations

import math
from functools import reduce
from operator import add

import jax.numpy as jnp

from .few_windows import Geometry, seen
from .registry import Array, wide

#: with more the sum is long to compile: 7 x 7 of a ConvNeXt are below, 31 x 31 are not
_ELEMENTS = 64


def is_depthwise(weight: Array, groups: int) -> bool:
    """Has each of several groups one input channel, and a kernel of few elements?"""
    return groups > 1 and weight.shape[1] == 1 and 0 < math.prod(weight.shape[2:]) <= _ELEMENTS


def plain(x: Array, weight: Array, geometry: Geometry) -> Array:
    """``x`` is ``(N, in, *spatial)``, ``weight`` ``(out, 1, *kernel)``; gives ``(N, out, *windows)``."""
    kernels = wide(weight).reshape(x.shape[1], -1, math.prod(weight.shape[2:]))  # (in, out / in, elements)
    ones = (1,) * (x.ndim - 2)
    total = reduce(
        add,
        (
            wide(part)[:, :, None] * kernels[..., i].reshape(*kernels.shape[:2], *ones)
            for i, part in enumerate(seen(x, weight.shape[2:], geometry))
        ),
    )
    return total.reshape(x.shape[0], weight.shape[0], *total.shape[3:]).astype(x.dtype)


def of_weight(x: Array, grad: Array, weight: Array, geometry: Geometry) -> Array:
    """The gradient of :func:`plain` in its weight, where the gradient in its result is ``grad``."""
    grad = wide(grad).reshape(x.shape[0], x.shape[1], -1, *grad.shape[2:])
    over = (0, *range(3, grad.ndim))
    parts = [(wide(part)[:, :, None] * grad).sum(over) for part in seen(x, weight.shape[2:], geometry)]
    return jnp.stack(parts, -1).reshape(weight.shape).astype(weight.dtype)
