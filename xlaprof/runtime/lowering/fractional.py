"""Fractional max pooling: windows whose places are drawn at random, per sample and channel.

Its gradient is that of any max pooling: :mod:`.pooling`.
"""

from __future__ import annotations

from math import prod

import jax.numpy as jnp

from .registry import Array, Ctx, Ints, lower, rounded, wide


def _starts(sample: Array, size: int, out: int, window: int) -> Array:
    """Where each of ``out`` windows begins: samples [...] -> [..., out]. PyTorch computes in the sample's dtype."""
    dtype = sample.dtype
    last = jnp.full((*sample.shape, 1), size - window)
    if out == 1:
        return last
    sample = wide(sample)[..., None]
    step = rounded(jnp.asarray((size - window) / (out - 1), sample.dtype), dtype)

    def at(x: Array) -> Array:
        return jnp.trunc(rounded(rounded(x, dtype) * step, dtype)).astype(jnp.int64)

    return jnp.concatenate([at(jnp.arange(out - 1) + sample) - at(sample), last], -1)


def _pool(ctx: Ctx, x: Array, kernel: Ints, output: Ints, samples: Array) -> tuple[Array, Array]:
    dims = len(kernel)
    spatial = x.shape[-dims:]
    batched = x.reshape(-1, x.shape[-dims - 1], *spatial)
    samples = samples[: batched.shape[0]].reshape(*batched.shape[:2], dims)  # there may be more than are used
    # PyTorch takes the last sample for the first of two dimensions, the first for the first of three.
    order = (1, 0) if dims == 2 else (0, 1, 2)
    flat = jnp.zeros((), jnp.int64)
    for d, (size, out, window) in enumerate(zip(spatial, output, kernel, strict=True)):
        start = _starts(samples[..., order[d]], size, out, window)
        place = start[..., None] + jnp.arange(window)  # N, C, out, window
        shape = [*place.shape[:2], *(1,) * (2 * dims)]
        shape[2 + d], shape[2 + dims + d] = out, window
        flat = flat * size + place.reshape(shape)
    planes = batched.shape[:2]  # none, maybe
    flat = flat.reshape(*planes, *output, prod(kernel))
    values = jnp.take_along_axis(
        batched.reshape(*planes, prod(spatial)), flat.reshape(*planes, prod(output) * prod(kernel)), axis=-1
    ).reshape(flat.shape)
    # the first of equal values, or the last NaN
    nan = jnp.isnan(values)
    behind = values.shape[-1] - 1 - jnp.argmax(nan[..., ::-1], -1)
    best = jnp.where(nan.any(-1), behind, jnp.argmax(jnp.where(nan, -jnp.inf, values), -1))[..., None]
    out_shape = ctx.out[0].shape
    return tuple(jnp.take_along_axis(a, best, -1).reshape(out_shape) for a in (values, flat))  # type: ignore[return-value]


@lower("aten.fractional_max_pool2d.default", "aten.fractional_max_pool3d.default")
def fractional_max_pool(
    ctx: Ctx, self: Array, kernel_size: Ints, output_size: Ints, random_samples: Array
) -> tuple[Array, Array]:
    dims = 2 if len(kernel_size) == 2 else 3
    return _pool(ctx, self, tuple(kernel_size)[:dims], tuple(output_size), random_samples)
