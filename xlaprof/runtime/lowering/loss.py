"""Loss functions, forward and backward. ``reduction`` is ATen's: 0 none, 1 mean, 2 sum."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from xlaprof.runtime.lowering.registry import Ctx, lower, scalar
from xlaprof.runtime.lowering.softmax import wide

Array = jax.Array

_NONE, _MEAN = 0, 1


def _reduced(loss: Array, reduction: int) -> Array:
    if reduction == _NONE:
        return loss
    return loss.mean() if reduction == _MEAN else loss.sum()


def _spread(grad_output: Array, count: int, reduction: int) -> Array:
    """The gradient of each of ``count`` summands of a reduced loss."""
    return grad_output / count if reduction == _MEAN else grad_output


def _picked(self: Array, target: Array, weight: Array | None, ignore_index: int) -> tuple[Array, int, Array, Array]:
    """Class per element (where ignored: 0), the axis of classes, and the weight of each element (ignored: 0).

    ``self`` is ``(C,)``, ``(N, C)`` or ``(N, C, ...)``; the results have the shape of ``self`` with one class.
    """
    axis = 0 if self.ndim == 1 else 1
    target = jnp.expand_dims(target.reshape(()) if self.ndim == 1 else target, axis)
    kept = target != ignore_index
    label = jnp.where(kept, target, 0)
    one = jnp.ones((), self.dtype) if weight is None else jnp.take(wide(weight), label, mode="clip")
    return label, axis, jnp.where(kept, one, 0), kept


@lower("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default")
def nll_loss(
    ctx: Ctx, self: Array, target: Array, weight: Array | None, reduction: int, ignore_index: int
) -> tuple[Array, Array]:
    x = wide(self)
    label, axis, share, kept = _picked(x, target, weight, ignore_index)
    picked = jnp.take_along_axis(x, label, axis=axis, mode="clip")
    # not a product with the share alone: an ignored element may be infinite
    loss = -jnp.where(kept, picked, 0) * share
    if reduction == _NONE and self.ndim > 1:
        return loss.squeeze(axis), jnp.zeros((), x.dtype)
    total = share.sum()
    if reduction == _NONE:
        return loss.reshape(ctx.out[0].shape), total
    return (loss.sum() / total if reduction == _MEAN else loss.sum()), total


@lower("aten.nll_loss_backward.default", "aten.nll_loss2d_backward.default")
def nll_loss_backward(
    ctx: Ctx,
    grad_output: Array,
    self: Array,
    target: Array,
    weight: Array | None,
    reduction: int,
    ignore_index: int,
    total_weight: Array,
) -> Array:
    grad = wide(grad_output)
    label, axis, share, kept = _picked(wide(self), target, weight, ignore_index)
    if reduction == _MEAN:
        grad = grad / wide(total_weight)
    elif reduction == _NONE and self.ndim > 1:
        grad = jnp.expand_dims(grad, axis)
    grad = jnp.where(kept, -grad * share, 0)
    classes = jnp.arange(self.shape[axis]).reshape(-1, *(1,) * (self.ndim - 1 - axis))
    return jnp.where(label == classes, grad, 0)


@lower("aten.mse_loss.default")
def mse_loss(ctx: Ctx, self: Array, target: Array, reduction: int = 1) -> Array:
    return _reduced(jnp.square(wide(self) - wide(target)), reduction)


@lower("aten.mse_loss_backward.default")
def mse_loss_backward(ctx: Ctx, grad_output: Array, self: Array, target: Array, reduction: int) -> Array:
    difference = wide(self) - wide(target)
    return _spread(wide(grad_output), difference.size, reduction) * 2 * difference


@lower("aten.smooth_l1_loss.default")
def smooth_l1_loss(ctx: Ctx, self: Array, target: Array, reduction: int = 1, beta: Any = 1.0) -> Array:
    error = jnp.abs(wide(self) - wide(target))
    b = scalar(beta, error.dtype)
    return _reduced(jnp.where(error < b, error * error / (2 * b), error - b / 2), reduction)


@lower("aten.smooth_l1_loss_backward.default")
def smooth_l1_loss_backward(
    ctx: Ctx, grad_output: Array, self: Array, target: Array, reduction: int, beta: Any
) -> Array:
    difference = wide(self) - wide(target)
    b = scalar(beta, difference.dtype)
    slope = jnp.where(jnp.abs(difference) < b, difference / b, jnp.sign(difference))
    return _spread(wide(grad_output), difference.size, reduction) * slope


@lower("aten.huber_loss.default")
def huber_loss(ctx: Ctx, self: Array, target: Array, reduction: int = 1, delta: Any = 1.0) -> Array:
    error = jnp.abs(wide(self) - wide(target))
    d = scalar(delta, error.dtype)
    return _reduced(jnp.where(error <= d, error * error / 2, d * (error - d / 2)), reduction)


@lower("aten.huber_loss_backward.default")
def huber_loss_backward(ctx: Ctx, grad_output: Array, self: Array, target: Array, reduction: int, delta: Any) -> Array:
    difference = wide(self) - wide(target)
    d = scalar(delta, difference.dtype)
    return _spread(wide(grad_output), difference.size, reduction) * jnp.clip(difference, -d, d)


@lower("aten.binary_cross_entropy.default")
def binary_cross_entropy(
    ctx: Ctx, self: Array, target: Array, weight: Array | None = None, reduction: int = 1
) -> Array:
    x, y = wide(self), wide(target)
    # PyTorch bounds the logarithms so that a certain but wrong prediction has a finite loss.
    loss = (y - 1) * jnp.maximum(jnp.log1p(-x), -100) - y * jnp.maximum(jnp.log(x), -100)
    return _reduced(loss if weight is None else loss * weight, reduction)


@lower("aten.binary_cross_entropy_backward.default")
def binary_cross_entropy_backward(
    ctx: Ctx, grad_output: Array, self: Array, target: Array, weight: Array | None = None, reduction: int = 1
) -> Array:
    x, y = wide(self), wide(target)
    grad = wide(grad_output) * (x - y) / jnp.maximum((1 - x) * x, 1e-12)
    return _spread(grad if weight is None else grad * weight, x.size, reduction)


@lower("aten.binary_cross_entropy_with_logits.default")
def binary_cross_entropy_with_logits(
    ctx: Ctx,
    self: Array,
    target: Array,
    weight: Array | None = None,
    pos_weight: Array | None = None,
    reduction: int = 1,
) -> Array:
    x, y = wide(self), wide(target)
    log_sigmoid = jax.nn.log_sigmoid(x)
    if pos_weight is None:
        loss = (1 - y) * x - log_sigmoid
    else:
        loss = (1 - y) * x - (1 + (wide(pos_weight) - 1) * y) * log_sigmoid
    return _reduced(loss if weight is None else loss * weight, reduction)


@lower("aten.soft_margin_loss.default")
def soft_margin_loss(ctx: Ctx, self: Array, target: Array, reduction: int = 1) -> Array:
    return _reduced(jnp.log1p(jnp.exp(-wide(self) * wide(target))), reduction)


@lower("aten.soft_margin_loss_backward.default")
def soft_margin_loss_backward(ctx: Ctx, grad_output: Array, self: Array, target: Array, reduction: int) -> Array:
    y = wide(target)
    grad = wide(grad_output) * y * (jax.nn.sigmoid(wide(self) * y) - 1)
    return _spread(grad, max(self.size, target.size), reduction)
