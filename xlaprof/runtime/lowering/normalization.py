"""Batch, layer, group and root-mean-square normalisation, forward and backward.

Statistics are kept in float32 for float16 and bfloat16 inputs. Running statistics are never written in place:
the ``functional`` overloads return them, and the caller puts them where they belong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .registry import Array, Ctx, Ints, MaybeArray, Unsupported, direct_table, lower, scalar, wide


def _moments(x: Array, dims: Ints) -> tuple[Array, Array]:
    """Mean and biased variance over ``dims``, which are kept with size one."""
    mean = x.mean(dims, keepdims=True)
    return mean, jnp.square(x - mean).mean(dims, keepdims=True)


def _affine(x: Array, weight: MaybeArray, bias: MaybeArray, shape: Ints) -> Array:
    """``x * weight + bias``, both viewed as ``shape``."""
    if weight is not None:
        x = x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


def _grad_normalized(grad: Array, normalized: Array, rstd: Array, dims: Ints) -> Array:
    """Gradient of ``(x - mean) * rstd``, given ``grad`` with respect to it, where both statistics depend on x."""
    mean_grad = grad.mean(dims, keepdims=True)
    along = (grad * normalized).mean(dims, keepdims=True)
    return rstd * (grad - mean_grad - normalized * along)


@lower("aten.native_layer_norm.default")
def native_layer_norm(
    ctx: Ctx, input: Array, normalized_shape: Ints, weight: MaybeArray, bias: MaybeArray, eps: float
) -> tuple[Array, Array, Array]:
    x = wide(input)
    mean, var = _moments(x, range(x.ndim - len(normalized_shape), x.ndim))
    rstd = lax.rsqrt(var + eps)
    return _affine((x - mean) * rstd, weight, bias, normalized_shape), mean, rstd


@lower("aten.native_layer_norm_backward.default")
def native_layer_norm_backward(
    ctx: Ctx,
    grad_out: Array,
    input: Array,
    normalized_shape: Ints,
    mean: Array,
    rstd: Array,
    weight: MaybeArray,
    bias: MaybeArray,
    output_mask: Sequence[bool],
) -> tuple[MaybeArray, MaybeArray, MaybeArray]:
    x, grad, mean, rstd = wide(input), wide(grad_out), wide(mean), wide(rstd)
    outer = x.ndim - len(normalized_shape)
    normalized = (x - mean) * rstd
    of_normalized = _affine(grad, weight, None, normalized_shape)
    batch = tuple(range(outer))
    return (
        _grad_normalized(of_normalized, normalized, rstd, range(outer, x.ndim)) if output_mask[0] else None,
        (grad * normalized).sum(batch) if output_mask[1] and weight is not None else None,
        grad.sum(batch) if output_mask[2] and bias is not None else None,
    )


@lower("aten._fused_rms_norm.default")
def fused_rms_norm(
    ctx: Ctx, input: Array, normalized_shape: Ints, weight: MaybeArray, eps: float | None
) -> tuple[Array, Array]:
    x = wide(input)
    dims = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    rstd = lax.rsqrt(jnp.square(x).mean(dims, keepdims=True) + (np.finfo(x.dtype).eps if eps is None else eps))
    return _affine(x * rstd, weight, None, normalized_shape), rstd


@lower("aten._fused_rms_norm_backward.default")
def fused_rms_norm_backward(
    ctx: Ctx,
    grad_out: Array,
    input: Array,
    normalized_shape: Ints,
    rstd: Array,
    weight: MaybeArray,
    output_mask: Sequence[bool],
) -> tuple[MaybeArray, MaybeArray]:
    x, grad, rstd = wide(input), wide(grad_out), wide(rstd)
    outer = x.ndim - len(normalized_shape)
    normalized = x * rstd
    of_normalized = _affine(grad, weight, None, normalized_shape)
    along = (of_normalized * normalized).mean(range(outer, x.ndim), keepdims=True)
    return (
        rstd * (of_normalized - normalized * along) if output_mask[0] else None,
        (grad * normalized).sum(range(outer)) if output_mask[1] and weight is not None else None,
    )


@lower("aten.native_group_norm.default")
def native_group_norm(
    ctx: Ctx, input: Array, weight: MaybeArray, bias: MaybeArray, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Array, Array, Array]:
    x = wide(input).reshape(N, group, C // group * HxW)
    mean, var = _moments(x, (2,))
    rstd = lax.rsqrt(var + eps)
    out = _affine(((x - mean) * rstd).reshape(N, C, HxW), weight, bias, (C, 1))
    return out.reshape(input.shape), mean.reshape(N, group), rstd.reshape(N, group)


@lower("aten.native_group_norm_backward.default")
def native_group_norm_backward(
    ctx: Ctx,
    grad_out: Array,
    input: Array,
    mean: Array,
    rstd: Array,
    weight: MaybeArray,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> tuple[MaybeArray, MaybeArray, MaybeArray]:
    x, grad = wide(input).reshape(N, group, C // group * HxW), wide(grad_out).reshape(N, C, HxW)
    mean, rstd = wide(mean).reshape(N, group, 1), wide(rstd).reshape(N, group, 1)
    normalized = (x - mean) * rstd
    of_normalized = _affine(grad, weight, None, (C, 1)).reshape(x.shape)
    return (
        _grad_normalized(of_normalized, normalized, rstd, (2,)).reshape(input.shape) if output_mask[0] else None,
        (grad * normalized.reshape(grad.shape)).sum((0, 2)) if output_mask[1] else None,
        grad.sum((0, 2)) if output_mask[2] else None,
    )


def _channels(x: Array) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions a batch norm averages over, and the shape of one value per channel."""
    return (0, *range(2, x.ndim)), (1, -1, *(1,) * (x.ndim - 2))


def _batch_norm(
    input: Array,
    weight: MaybeArray,
    bias: MaybeArray,
    running_mean: MaybeArray,
    running_var: MaybeArray,
    training: bool,
    momentum: Any,
    eps: float,
) -> tuple[Array, Array, Array, MaybeArray, MaybeArray]:
    """Output, mean and 1 / std of the batch (empty in evaluation), and the new running statistics."""
    x = wide(input)
    dims, per_channel = _channels(x)
    if not training:
        if running_mean is None or running_var is None:
            raise Unsupported("batch norm in evaluation without running statistics")
        scale = lax.rsqrt(wide(running_var) + eps).reshape(per_channel)
        out = _affine((x - wide(running_mean).reshape(per_channel)) * scale, weight, bias, per_channel)
        empty = jnp.zeros(0, x.dtype)
        return out, empty, empty, running_mean, running_var
    mean, var = _moments(x, dims)
    rstd = lax.rsqrt(var + eps)
    out = _affine((x - mean) * rstd, weight, bias, per_channel)
    count = x.size // x.shape[1] if x.shape[1] else 0

    def updated(running: MaybeArray, batch: Array) -> MaybeArray:
        if running is None:
            return None
        old = wide(running)
        m = scalar(momentum, old.dtype)
        return (1 - m) * old + m * batch.reshape(old.shape)

    unbiased = var * (count / max(count - 1, 1))
    return out, mean.reshape(-1), rstd.reshape(-1), updated(running_mean, mean), updated(running_var, unbiased)


def _known_mode(training: bool, args: tuple[Any, ...]) -> tuple[tuple[MaybeArray, ...], tuple[MaybeArray, ...]]:
    """Batch norm by an operator that has no argument ``training``: its three outputs; the new running statistics."""
    results = _batch_norm(*[*args[:5], training, *args[5:]])
    return results[:3], results[3:]


def _reserve() -> Array:
    """A buffer of cuDNN's, empty here."""
    return jnp.zeros(0, jnp.uint8)


def _batch_norm_with_update(*args: Any) -> tuple[MaybeArray, ...]:
    outputs, running = _known_mode(True, args)
    return (*outputs, _reserve(), *running)


direct_table(
    {
        "_native_batch_norm_legit_functional": _batch_norm,
        # In training this operator also updates ``running_mean`` and ``running_var`` in place, which its schema does
        # not say: whoever records it must record ``_native_batch_norm_legit_functional`` instead when they are given.
        "native_batch_norm": lambda *args: _batch_norm(*args)[:3],
        "_native_batch_norm_legit.no_stats": lambda x, weight, bias, *rest: _batch_norm(
            x, weight, bias, None, None, *rest
        )[:3],
        "_native_batch_norm_legit_no_training": lambda *args: _known_mode(False, args)[0],
        "_batch_norm_no_update": lambda *args: (*_known_mode(False, args)[0], _reserve()),
        "_batch_norm_with_update_functional": _batch_norm_with_update,
    }
)


@lower("aten.native_batch_norm_backward.default")
def native_batch_norm_backward(
    ctx: Ctx,
    grad_out: Array,
    input: Array,
    weight: MaybeArray,
    running_mean: MaybeArray,
    running_var: MaybeArray,
    save_mean: MaybeArray,
    save_invstd: MaybeArray,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[MaybeArray, MaybeArray, MaybeArray]:
    x, grad = wide(input), wide(grad_out)
    dims, per_channel = _channels(x)
    if train:
        if save_mean is None or save_invstd is None:
            raise Unsupported("the backward of a batch norm in training without its saved statistics")
        mean, rstd = wide(save_mean), wide(save_invstd)
    else:
        if running_mean is None or running_var is None:
            raise Unsupported("the backward of a batch norm in evaluation without running statistics")
        mean, rstd = wide(running_mean), lax.rsqrt(wide(running_var) + eps)
    mean, rstd = mean.reshape(per_channel), rstd.reshape(per_channel)
    normalized = (x - mean) * rstd
    of_normalized = _affine(grad, weight, None, per_channel)
    of_input = _grad_normalized(of_normalized, normalized, rstd, dims) if train else of_normalized * rstd
    return (
        of_input if output_mask[0] else None,
        (grad * normalized).sum(dims) if output_mask[1] else None,
        grad.sum(dims) if output_mask[2] else None,
    )


@lower("aten.batch_norm_backward.default")
def batch_norm_backward(ctx: Ctx, *args: Any) -> tuple[MaybeArray, MaybeArray, MaybeArray]:
    """The same gradient: what this overload calls ``save_var`` is 1 / std as well, and its reserve is not needed."""
    return native_batch_norm_backward(ctx, *args[:-1])


@lower("aten._weight_norm_interface_backward.default")
def weight_norm_backward(
    ctx: Ctx, grad_w: Any, saved_v: Any, saved_g: Any, saved_norms: Any, dim: int
) -> tuple[Any, Any]:
    """Of ``w = v * (g / norm(v))``, the norm taken over all dimensions but ``dim``."""
    grad, v = (wide(x) for x in (grad_w, saved_v))
    axes = tuple(d for d in range(v.ndim) if d != dim % v.ndim)
    g, norms = (x.astype(v.dtype).reshape(jnp.sum(v, axes, keepdims=True).shape) for x in (saved_g, saved_norms))
    along = jnp.sum(grad * v, axes, keepdims=True) / norms
    return g / norms * (grad - v / norms * along), along.reshape(saved_g.shape)
