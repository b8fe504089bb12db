"""Loss functions and their gradients. ``reduction`` is ATen's: 0 none, 1 mean, 2 sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .registry import Array, Ctx, MaybeArray, lower, scalar, wide

_NONE, _MEAN = 0, 1


def _reduced(loss: Array, reduction: int) -> Array:
    if reduction == _NONE:
        return loss
    return loss.mean() if reduction == _MEAN else loss.sum()


def _spread(grad_output: Array, count: int, reduction: int) -> Array:
    """The gradient of each of ``count`` summands of a reduced loss."""
    return grad_output / count if reduction == _MEAN else grad_output


def _picked(self: Array, target: Array, weight: MaybeArray, ignore_index: int) -> tuple[Array, int, Array, Array]:
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
    ctx: Ctx, self: Array, target: Array, weight: MaybeArray, reduction: int, ignore_index: int
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
    weight: MaybeArray,
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


def _of_difference(name: str, loss: Any, gradient: Any) -> None:
    """Register the loss ``name`` of a difference d, with a parameter p: ``loss(d, p)`` and ``gradient(grad, d, p)``."""

    @lower(f"aten.{name}.default")
    def forward(ctx: Ctx, self: Array, target: Array, reduction: int = 1, p: Any = 1.0) -> Array:
        difference = wide(self) - wide(target)
        return _reduced(loss(difference, scalar(p, difference.dtype)), reduction)

    @lower(f"aten.{name}_backward.default")
    def backward(ctx: Ctx, grad_output: Array, self: Array, target: Array, reduction: int, p: Any = 1.0) -> Array:
        difference = wide(self) - wide(target)
        grad = _spread(wide(grad_output), difference.size, reduction)
        return gradient(grad, difference, scalar(p, difference.dtype))  # type: ignore[no-any-return]


def _huber(difference: Array, delta: Array) -> Array:
    error = jnp.abs(difference)
    return jnp.where(error <= delta, error * error / 2, delta * (error - delta / 2))


def _smooth_l1(difference: Array, beta: Array) -> Array:
    error = jnp.abs(difference)
    return jnp.where(error < beta, error * error / (2 * beta), error - beta / 2)


_of_difference("mse_loss", lambda d, p: jnp.square(d), lambda grad, d, p: grad * 2 * d)
_of_difference("huber_loss", _huber, lambda grad, d, delta: grad * jnp.clip(d, -delta, delta))
_of_difference(
    "smooth_l1_loss",
    _smooth_l1,
    lambda grad, d, beta: grad * jnp.where(jnp.abs(d) < beta, d / beta, jnp.sign(d)),
)


@lower("aten.binary_cross_entropy.default")
def binary_cross_entropy(ctx: Ctx, self: Array, target: Array, weight: MaybeArray = None, reduction: int = 1) -> Array:
    x, y = wide(self), wide(target)
    # PyTorch bounds the logarithms so that a certain but wrong prediction has a finite loss.
    loss = (y - 1) * jnp.maximum(jnp.log1p(-x), -100) - y * jnp.maximum(jnp.log(x), -100)
    return _reduced(loss if weight is None else loss * weight, reduction)


@lower("aten.binary_cross_entropy_backward.default")
def binary_cross_entropy_backward(
    ctx: Ctx, grad_output: Array, self: Array, target: Array, weight: MaybeArray = None, reduction: int = 1
) -> Array:
    x, y = wide(self), wide(target)
    grad = wide(grad_output) * (x - y) / jnp.maximum((1 - x) * x, 1e-12)
    return _spread(grad if weight is None else grad * weight, x.size, reduction)


@lower("aten.binary_cross_entropy_with_logits.default")
def binary_cross_entropy_with_logits(
    ctx: Ctx, self: Array, target: Array, weight: MaybeArray = None, pos_weight: MaybeArray = None, reduction: int = 1
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


# -- margins between classes --------------------------------------------------------------------------


def _samples(x: Array) -> Array:
    """``x`` as [samples, classes]."""
    return wide(x).reshape(-1, x.shape[-1] if x.ndim else 1)


def _pulled_back(losses: Callable[[Array], Array], grad_output: Array, self: Array, reduction: int) -> Array:
    """The gradient of the reduced ``losses`` of each sample, [samples, classes] -> [samples]."""
    x = _samples(self)
    _, pull = jax.vjp(losses, x)
    share = _spread(wide(grad_output), x.shape[0], reduction)
    gradient: Array = pull(jnp.broadcast_to(share.reshape(-1), x.shape[:1]))[0]
    return gradient.reshape(self.shape)


def _targets(target: Array) -> tuple[Array, Array, Array]:
    """For targets ``(N, C)``: labels (0 from the first -1 on), which come before that, and which classes those name.

    (PyTorch 2.13's decomposition counts the targets behind the first -1 too.)
    """
    classes = jnp.arange(target.shape[1])
    kept = jnp.cumsum(target == -1, axis=1) == 0
    label = jnp.where(kept, target, 0)
    among = ((label[:, :, None] == classes) & kept[:, :, None]).any(1)
    return label, kept, among


def _multilabel_margin(x: Array, label: Array, kept: Array, among: Array) -> Array:
    """Loss of each of N samples: how far each class that is no target comes within 1 of each that is one."""
    margins = 1 - jnp.take_along_axis(x, label, axis=1, mode="clip")[:, :, None] + x[:, None, :]
    counted = kept[:, :, None] & ~among[:, None, :] & (margins > 0)
    return jnp.where(counted, margins, 0).sum((1, 2)) / x.shape[1]


@lower("aten.multilabel_margin_loss_forward.default")
def multilabel_margin_loss(ctx: Ctx, self: Array, target: Array, reduction: int) -> tuple[Array, Array]:
    x = _samples(self)
    targets = _targets(target.reshape(x.shape))
    losses = _multilabel_margin(x, *targets)
    return _reduced(losses, reduction).reshape(ctx.out[0].shape), targets[2].reshape(ctx.out[1].shape)


@lower("aten.multilabel_margin_loss_backward.default")
def multilabel_margin_loss_backward(
    ctx: Ctx, grad_output: Array, self: Array, target: Array, reduction: int, is_target: Array
) -> Array:
    targets = _targets(target.reshape(_samples(self).shape))
    return _pulled_back(lambda x: _multilabel_margin(x, *targets), grad_output, self, reduction)


def _multi_margin(x: Array, target: Array, p: float, margin: float, weight: MaybeArray) -> Array:
    """Loss of each of N samples: how far each class comes within ``margin`` of the target's, to the power ``p``."""
    right = jnp.take_along_axis(x, target[:, None], axis=1, mode="clip")
    gap = margin - right + x
    wrong = jnp.arange(x.shape[1]) != target[:, None]
    losses = jnp.where(wrong & (gap > 0), jnp.where(gap > 0, gap, 1) ** p, 0)
    if weight is not None:
        losses = losses * jnp.take(wide(weight), target, mode="clip")[:, None]
    return losses.sum(1) / x.shape[1]


@lower("aten.multi_margin_loss.default", static=("p", "margin"))
def multi_margin_loss(
    ctx: Ctx, self: Array, target: Array, p: float = 1, margin: float = 1, weight: MaybeArray = None, reduction: int = 1
) -> Array:
    losses = _multi_margin(_samples(self), target.reshape(-1), p, margin, weight)
    return _reduced(losses, reduction).reshape(ctx.out[0].shape)


@lower("aten.multi_margin_loss_backward.default", static=("p", "margin"))
def multi_margin_loss_backward(
    ctx: Ctx,
    grad_output: Array,
    self: Array,
    target: Array,
    p: float,
    margin: float,
    weight: MaybeArray = None,
    reduction: int = 1,
) -> Array:
    labels = target.reshape(-1)
    return _pulled_back(lambda x: _multi_margin(x, labels, p, margin, weight), grad_output, self, reduction)
