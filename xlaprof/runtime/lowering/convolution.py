"""Convolutions of one to three spatial dimensions, plain and transposed, and their gradients.

A plain convolution and the transposed one of the same weight are each other's gradient in the input. The gradient in
the weight is the same for both, with input and gradient in each other's place.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from . import depthwise, few_windows
from .few_windows import Geometry
from .registry import Array, Ctx, Ints, MaybeArray, lower


def _geometry(spatial: int, stride: Ints, padding: Ints, dilation: Ints, extra: Ints, groups: int) -> Geometry:
    """A single number holds for all dimensions. ``extra``: rows that a transposed convolution adds at the end."""
    stride, padding, dilation, extra = (
        tuple(v) * spatial if len(v) == 1 else tuple(v) for v in (stride, padding, dilation, extra)
    )
    return Geometry(stride, tuple((p, p - e) for p, e in zip(padding, extra, strict=True)), dilation, groups)


def _plain(x: Array, weight: Array, geometry: Geometry, spread: Ints | None = None) -> Array:
    """``x`` is ``(N, in, *spatial)``, ``weight`` ``(out, in / groups, *kernel)``; ``spread``: zeros go between rows."""
    windows = geometry.windows(x.shape[2:], weight.shape[2:])
    if spread is None and few_windows.are_few(x.shape[0], windows, weight, geometry):
        return few_windows.plain(x, weight, geometry)
    if depthwise.is_depthwise(weight, geometry.groups):
        return depthwise.plain(x, weight, geometry)  # x is spread out already
    layout = "DHW"[5 - x.ndim :]
    return lax.conv_general_dilated(
        x,
        weight,
        window_strides=geometry.stride,
        padding=geometry.pads,
        lhs_dilation=spread,
        rhs_dilation=geometry.dilation,
        dimension_numbers=(f"NC{layout}", f"OI{layout}", f"NC{layout}"),
        feature_group_count=geometry.groups,
        precision=lax.Precision.HIGHEST,
    )


def _transposed(x: Array, weight: Array, geometry: Geometry) -> Array:
    """The transpose of :func:`_plain` in its input: the flipped kernel over ``x`` spread out by the stride.

    The kernel's (in, out / groups) channels become (out, in / groups).
    """
    if few_windows.are_few(x.shape[0], x.shape[2:], weight, geometry):
        return few_windows.transposed(x, weight, geometry)
    stride, pads, dilation, groups = geometry
    inputs, outputs, *kernel = weight.shape
    weight = weight.reshape(groups, inputs // groups, outputs, *kernel).swapaxes(1, 2)
    weight = jnp.flip(weight.reshape(groups * outputs, inputs // groups, *kernel), range(2, weight.ndim - 1))
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    pads = tuple((r - before, r - after) for r, (before, after) in zip(reach, pads, strict=True))
    # XLA's fast kernels for the CPU spread out one or two dimensions only, and a depthwise sum none
    if x.ndim == 5 or depthwise.is_depthwise(weight, groups):
        x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0)] * 2 + [(0, 0, s - 1) for s in stride])
        stride = (1,) * len(stride)
    return _plain(x, weight, Geometry((1,) * len(stride), pads, dilation, groups), stride)


def _of_weight(x: Array, grad: Array, weight: Array, geometry: Geometry) -> Array:
    """The gradient of :func:`_plain` in its weight, where the gradient in its result is ``grad``."""
    if few_windows.are_few(grad.shape[0], grad.shape[2:], weight, geometry):
        return few_windows.of_weight(x, grad, weight, geometry)
    if depthwise.is_depthwise(weight, geometry.groups):
        return depthwise.of_weight(x, grad, weight, geometry)
    groups, kernel = geometry.groups, weight.shape[2:]
    if groups == 1 or weight.shape[1] == 1:
        of_weight: tuple[Array] = jax.linear_transpose(lambda w: _plain(x, w, geometry), weight)(grad)
        return of_weight[0]
    # XLA has no fast kernel for several groups: a product of matrices per element of the kernel
    grad = grad.reshape(grad.shape[0], groups, -1, *grad.shape[2:])
    products = []
    for seen in few_windows.seen(x, kernel, geometry):
        seen = seen.reshape(seen.shape[0], groups, -1, *seen.shape[2:])
        products.append(jnp.einsum("bgo...,bgi...->goi", grad, seen, precision=lax.Precision.HIGHEST))
    return jnp.stack(products, -1).reshape(weight.shape)


@lower("aten.convolution.default", "aten.convolution_overrideable.default", "aten._convolution.default")
def convolution(ctx: Ctx, input: Array, weight: Array, bias: MaybeArray, *geometry_and_flags: Any) -> Array:
    stride, padding, dilation, transposed, extra, groups = geometry_and_flags[:6]  # without flags for other backends
    geometry = _geometry(input.ndim - 2, stride, padding, dilation, extra, groups)
    out = (_transposed if transposed else _plain)(input, weight, geometry)
    return out if bias is None else out + bias.reshape(-1, *(1,) * (input.ndim - 2))


@lower("aten.convolution_backward.default")
def convolution_backward(
    ctx: Ctx, grad_output: Array, input: Array, weight: Array, bias_sizes: Ints | None, *geometry_and_mask: Any
) -> tuple[MaybeArray, MaybeArray, MaybeArray]:
    # as of the forward convolution; and which gradients are wanted
    stride, padding, dilation, transposed, extra, groups, mask = geometry_and_mask
    geometry = _geometry(input.ndim - 2, stride, padding, dilation, extra, groups)
    x, grad = (grad_output, input) if transposed else (input, grad_output)  # of the plain convolution
    of_input: MaybeArray = None
    if mask[0] and transposed:
        of_input = _plain(grad_output, weight, geometry)
    elif mask[0]:
        # the last rows that no window reached
        covered = geometry.covered(grad.shape[2:], weight.shape[2:])
        rest = [n - c for n, c in zip(x.shape[2:], covered, strict=True)]
        pads = tuple((before, after - r) for (before, after), r in zip(geometry.pads, rest, strict=True))
        of_input = _transposed(grad_output, weight, geometry._replace(pads=pads))
    return (
        of_input,
        _of_weight(x, grad, weight, geometry) if mask[1] else None,
        grad_output.sum((0, *range(2, input.ndim))) if mask[2] else None,
    )


lower("aten.convolution_backward_overrideable.default")(
    lambda ctx, grad, input, weight, *rest: convolution_backward(ctx, grad, input, weight, None, *rest)
)
