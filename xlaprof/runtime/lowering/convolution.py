"""Convolutions of one to three spatial dimensions, plain and transposed, and their gradients.

Gradients are jax's own transposes of the forward convolution: it is linear in its input and in its weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from xlaprof.runtime.lowering.registry import Ctx, lower

Array = jax.Array


def _conv(
    x: Array,
    weight: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Array:
    """The convolution without bias: ``x`` is ``(N, C, *spatial)``; a single stride etc. holds for all dimensions."""
    spatial = x.ndim - 2
    stride, padding, dilation, output_padding = (
        tuple(v) * spatial if len(v) == 1 else tuple(v) for v in (stride, padding, dilation, output_padding)
    )
    layout = "".join("DHW"[3 - spatial :])
    numbers = lax.conv_dimension_numbers(x.shape, weight.shape, (f"NC{layout}", f"OI{layout}", f"NC{layout}"))
    if not transposed:
        return lax.conv_general_dilated(
            x,
            weight,
            window_strides=stride,
            padding=[(p, p) for p in padding],
            rhs_dilation=dilation,
            dimension_numbers=numbers,
            feature_group_count=groups,
            precision=lax.Precision.HIGHEST,
        )
    # A transposed convolution is a convolution of the input spread out by the stride with the flipped kernel,
    # whose (in, out / groups) channels become (out, in / groups).
    kernel = weight.shape[2:]
    w = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], *kernel).swapaxes(1, 2)
    w = jnp.flip(w.reshape(groups * weight.shape[1], weight.shape[0] // groups, *kernel), range(2, weight.ndim))
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    numbers = lax.conv_dimension_numbers(x.shape, w.shape, (f"NC{layout}", f"OI{layout}", f"NC{layout}"))
    return lax.conv_general_dilated(
        x,
        w,
        window_strides=(1,) * spatial,
        padding=[(r - p, r - p + o) for r, p, o in zip(reach, padding, output_padding, strict=True)],
        lhs_dilation=stride,
        rhs_dilation=dilation,
        dimension_numbers=numbers,
        feature_group_count=groups,
        precision=lax.Precision.HIGHEST,
    )


@lower("aten.convolution.default", "aten.convolution_overrideable.default", "aten._convolution.default")
def convolution(
    ctx: Ctx,
    input: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *_backend_flags: Any,
) -> Array:
    out = _conv(input, weight, stride, padding, dilation, transposed, output_padding, groups)
    return out if bias is None else out + bias.reshape(-1, *(1,) * (input.ndim - 2))


@lower("aten.convolution_backward.default")
def convolution_backward(
    ctx: Ctx,
    grad_output: Array,
    input: Array,
    weight: Array,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Array | None, Array | None, Array | None]:
    geometry = (stride, padding, dilation, transposed, output_padding, groups)

    def of_input(x: Array) -> Array:
        return _conv(x, weight, *geometry)

    def of_weight(w: Array) -> Array:
        return _conv(input, w, *geometry)

    spatial = tuple(range(2, input.ndim))
    return (
        jax.linear_transpose(of_input, input)(grad_output)[0] if output_mask[0] else None,
        jax.linear_transpose(of_weight, weight)(grad_output)[0] if output_mask[1] else None,
        grad_output.sum((0, *spatial)) if output_mask[2] else None,
    )


@lower("aten.convolution_backward_overrideable.default")
def convolution_backward_overrideable(
    ctx: Ctx, grad_output: Array, input: Array, weight: Array, *geometry: Any
) -> tuple[Array | None, Array | None, Array | None]:
    return convolution_backward(ctx, grad_output, input, weight, None, *geometry)
