"""Tables of vectors looked up by integer, one by one or folded into one row per bag, and their gradients."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from .registry import Array, Ctx, MaybeArray, direct_table, lower, scalar, wide


@lower("aten.embedding_dense_backward.default")
def embedding_dense_backward(
    ctx: Ctx, grad_output: Array, indices: Array, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Array:
    rows = indices.reshape(-1)
    grad = wide(grad_output.reshape(rows.size, *grad_output.shape[indices.ndim :]))
    if scale_grad_by_freq:
        count = jnp.zeros(num_weights, grad.dtype).at[rows].add(1, mode="drop")
        grad = grad / jnp.take(count, rows, mode="clip")[:, None]
    if padding_idx >= 0:
        rows = jnp.where(rows == padding_idx, num_weights, rows)  # out of range: dropped
    return jnp.zeros((num_weights, *grad.shape[1:]), grad.dtype).at[rows].add(grad, mode="drop")


# -- bags ---------------------------------------------------------------------------------------------

_SUM, _MEAN, _MAX = 0, 1, 2


def _bag_of(offsets: Array, bags: int, size: int) -> Array:
    """The bag of each of ``size`` indices; ``bags`` for an index after the last offset, if that is the end."""
    place = jnp.arange(size)
    bag = jnp.searchsorted(offsets[:bags], place, side="right") - 1
    return jnp.where(place < offsets[bags], bag, bags) if offsets.shape[0] > bags else bag


def _kept(rows: Array, padding_idx: int) -> Array:
    return rows != padding_idx if padding_idx >= 0 else jnp.ones(rows.shape, jnp.bool_)


@lower("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")
def embedding_bag(
    ctx: Ctx,
    weight: Array,
    indices: Array,
    offsets: Array,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: MaybeArray = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Array, Array, Array, Array]:
    out, bag_out, size_out, max_out = ctx.out
    bags = out.shape[0]
    bag = _bag_of(offsets, bags, indices.shape[0])
    kept = _kept(indices, padding_idx)
    rows = wide(jnp.take(weight, indices, axis=0, mode="clip"))
    if per_sample_weights is not None:
        rows = rows * wide(per_sample_weights)[:, None]
    size = jnp.zeros(bags, jnp.int64).at[bag].add(kept, mode="drop")
    target = jnp.where(kept, bag, bags)  # out of range: dropped
    where = jnp.zeros(max_out.shape, max_out.jax)
    if mode == _MAX:
        result, where = _largest(rows, indices, target, bags)
        result = jnp.where(size[:, None] > 0, result, 0)
        where = where.astype(max_out.jax)
    else:
        result = jnp.zeros((bags, weight.shape[1]), rows.dtype).at[target].add(rows, mode="drop")
        if mode == _MEAN:
            result = result / jnp.maximum(size, 1)[:, None].astype(rows.dtype)
    sizes = jnp.zeros(size_out.shape, size_out.jax)
    sizes = sizes.at[:bags].set(size[: sizes.shape[0]].astype(sizes.dtype)) if sizes.size else sizes
    return result, jnp.broadcast_to(bag[: bag_out.shape[0]], bag_out.shape), sizes, where


def _largest(rows: Array, indices: Array, target: Array, bags: int) -> tuple[Array, Array]:
    """The maxima of each bag, and which row of the table each came from: the first of equal ones."""
    n, width = rows.shape
    largest = jnp.full((bags, width), -jnp.inf, rows.dtype).at[target].max(rows, mode="drop")
    same = rows == jnp.take(largest, target, axis=0, mode="clip")
    place = jnp.where(same, jnp.arange(n)[:, None], n)
    first = jnp.full((bags, width), n, jnp.int64).at[target].min(place, mode="drop")
    return largest, jnp.where(first < n, jnp.take(indices, first, mode="clip"), 0) if n else jnp.zeros_like(first)


@lower("aten._embedding_bag_backward.default")
def embedding_bag_backward(
    ctx: Ctx, grad: Array, indices: Array, offsets: Array, offset2bag: Array, *options: Any
) -> Array:
    bag = _bag_of(offsets, grad.shape[0], indices.shape[0])
    return _dense_backward(grad, indices, bag, *options[:5], *options[6:])  # without ``sparse``


def _dense_backward(
    grad: Array,
    indices: Array,
    offset2bag: Array,
    bag_size: Array,
    maximum_indices: Array,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: MaybeArray,
    padding_idx: int = -1,
) -> Array:
    grad = wide(grad)
    table = jnp.zeros((num_weights, grad.shape[1]), grad.dtype)
    if mode == _MAX:
        filled = (bag_size[: grad.shape[0]] > 0)[:, None]
        rows = jnp.where(filled, maximum_indices, num_weights)
        return table.at[rows, jnp.arange(grad.shape[1])].add(grad, mode="drop")
    if mode == _MEAN:
        grad = grad / jnp.maximum(bag_size[: grad.shape[0]], 1)[:, None].astype(grad.dtype)
    each = jnp.take(grad, offset2bag, axis=0, mode="clip")
    if per_sample_weights is not None:
        each = each * wide(per_sample_weights)[:, None]
    if scale_grad_by_freq:
        count = jnp.zeros(num_weights, grad.dtype).at[indices].add(1, mode="drop")
        each = each / jnp.take(count, indices, mode="clip")[:, None]
    kept = _kept(indices, padding_idx) & (offset2bag < grad.shape[0])
    return table.at[jnp.where(kept, indices, num_weights)].add(each, mode="drop")


def _per_sample_weights_backward(
    grad: Array, weight: Array, indices: Array, offsets: Array, offset2bag: Array, mode: int, padding_idx: int = -1
) -> Array:
    bag = _bag_of(offsets, grad.shape[0], indices.shape[0])
    rows = wide(jnp.take(weight, indices, axis=0, mode="clip"))
    each = jnp.sum(rows * wide(jnp.take(grad, bag, axis=0, mode="clip")), -1)
    return jnp.where(_kept(indices, padding_idx) & (bag < grad.shape[0]), each, 0)


direct_table(
    {
        "embedding": lambda weight, indices, *gradient_options: jnp.take(weight, indices, axis=0, mode="clip"),
        "_embedding_bag_dense_backward": _dense_backward,
        "_embedding_bag_per_sample_weights_backward": _per_sample_weights_backward,
    }
)


@lower("aten.embedding_renorm.default", static=("norm_type",))
def embedding_renorm(ctx: Ctx, self: Array, indices: Array, max_norm: Any, norm_type: float) -> Array:
    """Rows that are looked up and too long are shortened to ``max_norm``."""
    used = jnp.zeros(self.shape[0], jnp.bool_).at[indices.reshape(-1)].set(True, mode="drop")
    x = wide(self)
    norm = jnp.linalg.norm(x, ord=norm_type, axis=-1)
    limit = scalar(max_norm, x.dtype)
    scale = jnp.where(used & (norm > limit), limit / (norm + 1e-7), 1)
    return x * scale[:, None]


@lower("xla.class_numbers.default")
def class_numbers(ctx: Ctx, self: Array, num_classes: Any) -> Array:
    """The numbers as they are: debug checks look at them before they become columns (``one_hot``)."""
    return self
