"""Convolutions of one to three spatial dimensions, plain and transposed, and their gradients.

Gradients are jax's own transposes of the forward convolution: it is linear in its input and in its weight.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .registry import Array, Ctx, Ints, MaybeArray, lower


def _conv(
    x: Array,
    weight: Array,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
) -> Array:
    """The convolution without bias: ``x`` is ``(N, C, *spatial)``; a single stride etc. holds for all dimensions."""
    spatial = x.ndim - 2
    stride, padding, dilation, output_padding = (
        tuple(v) * spatial if len(v) == 1 else tuple(v) for v in (stride, padding, dilation, output_padding)
    )
    pads = [(p, p) for p in padding]
    strides: tuple[int, ...] = stride
    spread = (1,) * spatial
    if transposed:
        # A transposed convolution is a convolution of the input spread out by the stride with the flipped kernel,
        # whose (in, out / groups) channels become (out, in / groups).
        inputs, outputs, *kernel = weight.shape
        weight = weight.reshape(groups, inputs // groups, outputs, *kernel).swapaxes(1, 2)
        weight = jnp.flip(weight.reshape(groups * outputs, inputs // groups, *kernel), range(2, weight.ndim - 1))
        reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        pads = [(r - p, r - p + o) for r, p, o in zip(reach, padding, output_padding, strict=True)]
        strides, spread = spread, stride
    layout = "DHW"[3 - spatial :]
    return lax.conv_general_dilated(
        x,
        weight,
        window_strides=strides,
        padding=pads,
        lhs_dilation=spread,
        rhs_dilation=dilation,
        dimension_numbers=(f"NC{layout}", f"OI{layout}", f"NC{layout}"),
        feature_group_count=groups,
        precision=lax.Precision.HIGHEST,
    )


@lower("aten.convolution.default", "aten.convolution_overrideable.default", "aten._convolution.default")
def convolution(ctx: Ctx, input: Array, weight: Array, bias: MaybeArray, *geometry_and_flags: Any) -> Array:
    out = _conv(input, weight, *geometry_and_flags[:6])  # without flags for other backends
    return out if bias is None else out + bias.reshape(-1, *(1,) * (input.ndim - 2))


@lower("aten.convolution_backward.default")
def convolution_backward(
    ctx: Ctx, grad_output: Array, input: Array, weight: Array, bias_sizes: Ints | None, *geometry_and_mask: Any
) -> tuple[MaybeArray, MaybeArray, MaybeArray]:
    *geometry, mask = geometry_and_mask  # as of the forward convolution; which gradients are wanted

    def of_input(x: Array) -> Array:
        return _conv(x, weight, *geometry)

    def of_weight(w: Array) -> Array:
        return _conv(input, w, *geometry)

    return (
        jax.linear_transpose(of_input, input)(grad_output)[0] if mask[0] else None,
        jax.linear_transpose(of_weight, weight)(grad_output)[0] if mask[1] else None,
        grad_output.sum((0, *range(2, input.ndim))) if mask[2] else None,
    )


@lower("aten.convolution_backward_overrideable.default")
def convolution_backward_overrideable(
    ctx: Ctx, grad_output: Array, input: Array, weight: Array, *geometry_and_mask: Any
) -> tuple[MaybeArray, MaybeArray, MaybeArray]:
    return convolution_backward(ctx, grad_output, input, weight, None, *geometry_and_mask)
