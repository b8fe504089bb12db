"""Softmax and its logarithm, forward and backward, computed in float32 or wider."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import torch

from .registry import JAX_DTYPE, Array, Ctx, lower, wide


def _shifted(x: Array, dim: int) -> Array:
    """``x`` less its maximum, so that no exponential overflows; also for empty ``x``, which has no maximum."""
    return x - jnp.max(x, axis=dim, keepdims=True, initial=-jnp.inf) if x.size else x


@lower("aten._softmax.default")
def softmax(ctx: Ctx, self: Array, dim: int, half_to_float: bool) -> Array:
    x = wide(jnp.atleast_1d(self))
    e = jnp.exp(_shifted(x, dim))
    return (e / e.sum(dim, keepdims=True)).reshape(self.shape)


@lower("aten._safe_softmax.default")
def safe_softmax(ctx: Ctx, self: Array, dim: int, dtype: torch.dtype | None = None) -> Array:
    """Softmax whose rows are zero where all of the input is ``-inf`` (attention to nothing)."""
    x = self if dtype is None else self.astype(JAX_DTYPE[dtype])
    nothing = jnp.all(jnp.atleast_1d(x) == -jnp.inf, axis=dim, keepdims=True)
    return jnp.where(nothing.reshape(()) if x.ndim == 0 else nothing, 0, softmax(ctx, x, dim, False))


@lower("aten._softmax_backward_data.default")
def softmax_backward_data(ctx: Ctx, grad_output: Array, output: Array, dim: int, input_dtype: Any) -> Array:
    g, y = (wide(jnp.atleast_1d(a)) for a in (grad_output, output))
    return (y * (g - (g * y).sum(dim, keepdims=True))).reshape(output.shape)


@lower("aten._log_softmax.default")
def log_softmax(ctx: Ctx, self: Array, dim: int, half_to_float: bool) -> Array:
    x = _shifted(wide(jnp.atleast_1d(self)), dim)
    return (x - jnp.log(jnp.exp(x).sum(dim, keepdims=True))).reshape(self.shape)


@lower("aten._log_softmax_backward_data.default")
def log_softmax_backward_data(ctx: Ctx, grad_output: Array, output: Array, dim: int, input_dtype: Any) -> Array:
    g, y = (wide(jnp.atleast_1d(a)) for a in (grad_output, output))
    return (g - jnp.exp(y) * g.sum(dim, keepdims=True)).reshape(output.shape)
