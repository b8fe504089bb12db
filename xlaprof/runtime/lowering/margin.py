"""Losses of margins between classes.

Of the multi-label loss, targets end at the first -1 (PyTorch 2.13's decomposition counts those behind it too).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xlaprof.runtime.lowering.registry import Ctx, lower
from xlaprof.runtime.lowering.softmax import wide

Array = jax.Array

_NONE, _MEAN = 0, 1


def _targets(target: Array) -> tuple[Array, Array, Array]:
    """For targets ``(N, C)``: each, or 0 from the first -1 on; which come before it; which classes are among those."""
    classes = jnp.arange(target.shape[1])
    kept = jnp.cumsum(target == -1, axis=1) == 0
    label = jnp.where(kept, target, 0)
    among = ((label[:, :, None] == classes) & kept[:, :, None]).any(1)
    return label, kept, among


def _losses(x: Array, label: Array, kept: Array, among: Array) -> Array:
    """Loss of each of N samples: how far each class that is no target comes within 1 of each that is one."""
    margins = 1 - jnp.take_along_axis(x, label, axis=1, mode="clip")[:, :, None] + x[:, None, :]
    counted = kept[:, :, None] & ~among[:, None, :] & (margins > 0)
    return jnp.where(counted, margins, 0).sum((1, 2)) / x.shape[1]


def _reduced(losses: Array, reduction: int) -> Array:
    return losses if reduction == _NONE else losses.mean() if reduction == _MEAN else losses.sum()


@lower("aten.multilabel_margin_loss_forward.default")
def multilabel_margin_loss(ctx: Ctx, self: Array, target: Array, reduction: int) -> tuple[Array, Array]:
    classes = self.shape[-1] if self.ndim else 1
    x, (label, kept, among) = wide(self).reshape(-1, classes), _targets(target.reshape(-1, classes))
    losses = _losses(x, label, kept, among)
    return _reduced(losses, reduction).reshape(ctx.out[0].shape), among.reshape(ctx.out[1].shape)


@lower("aten.multilabel_margin_loss_backward.default")
def multilabel_margin_loss_backward(
    ctx: Ctx, grad_output: Array, self: Array, target: Array, reduction: int, is_target: Array
) -> Array:
    classes = self.shape[-1] if self.ndim else 1
    x, (label, kept, among) = wide(self).reshape(-1, classes), _targets(target.reshape(-1, classes))
    _, pull = jax.vjp(lambda x: _losses(x, label, kept, among), x)
    share = wide(grad_output) / x.shape[0] if reduction == _MEAN else wide(grad_output)
    gradient: Array = pull(jnp.broadcast_to(share.reshape(-1), x.shape[:1]))[0]
    return gradient.reshape(self.shape)


def _multi_margin(x: Array, target: Array, p: float, margin: float, weight: Array | None) -> Array:
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
    ctx: Ctx,
    self: Array,
    target: Array,
    p: float = 1,
    margin: float = 1,
    weight: Array | None = None,
    reduction: int = _MEAN,
) -> Array:
    classes = self.shape[-1] if self.ndim else 1
    losses = _multi_margin(wide(self).reshape(-1, classes), target.reshape(-1), p, margin, weight)
    return _reduced(losses, reduction).reshape(ctx.out[0].shape)


@lower("aten.multi_margin_loss_backward.default", static=("p", "margin"))
def multi_margin_loss_backward(
    ctx: Ctx,
    grad_output: Array,
    self: Array,
    target: Array,
    p: float,
    margin: float,
    weight: Array | None = None,
    reduction: int = _MEAN,
) -> Array:
    classes = self.shape[-1] if self.ndim else 1
    x = wide(self).reshape(-1, classes)
    _, pull = jax.vjp(lambda x: _multi_margin(x, target.reshape(-1), p, margin, weight), x)
    share = wide(grad_output) / x.shape[0] if reduction == _MEAN else wide(grad_output)
    gradient: Array = pull(jnp.broadcast_to(share.reshape(-1), x.shape[:1]))[0]
    return gradient.reshape(self.shape)
