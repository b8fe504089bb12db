"""Tables of vectors looked up by integer, and their gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xlaprof.runtime.lowering.registry import Ctx, lower

Array = jax.Array


@lower("aten.embedding.default")
def embedding(
    ctx: Ctx,
    weight: Array,
    indices: Array,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Array:
    return jnp.take(weight, indices, axis=0, mode="clip")


@lower("aten.embedding_dense_backward.default")
def embedding_dense_backward(
    ctx: Ctx, grad_output: Array, indices: Array, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Array:
    rows = indices.reshape(-1)
    # sums of many float16 or bfloat16 rows are kept in float32
    grad = grad_output.reshape(rows.size, *grad_output.shape[indices.ndim :])
    grad = grad.astype(jnp.promote_types(grad.dtype, jnp.float32))
    if scale_grad_by_freq:
        count = jnp.zeros(num_weights, grad.dtype).at[rows].add(1, mode="drop")
        grad = grad / jnp.take(count, rows, mode="clip")[:, None]
    if padding_idx >= 0:
        rows = jnp.where(rows == padding_idx, num_weights, rows)  # out of range: dropped
    return jnp.zeros((num_weights, *grad.shape[1:]), grad.dtype).at[rows].add(grad, mode="drop")
