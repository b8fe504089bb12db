"""Rearranging and extending images: padding by reflection or repetition, sliding blocks, pixel shuffles."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from .pooling import transposed
from .registry import Array, Ctx, Ints, lower, wide


def _pad(mode: str, x: Array, padding: Ints) -> Array:
    """``x`` padded by ``(before, after)`` of its last dimension, then of the one before it, ...; may be negative."""
    for axis, (before, after) in enumerate(zip(padding[::2], padding[1::2], strict=True), 1):
        axis = x.ndim - axis
        size = x.shape[axis]
        place = np.arange(-before, size + after)
        if mode == "reflect":
            place = np.abs(place)
            place = np.where(place >= size, 2 * (size - 1) - place, place)
        else:
            place = np.clip(place, 0, size - 1)
        x = jnp.take(x, place, axis=axis, mode="clip")
    return x


def _register(mode: str, name: str) -> None:
    @lower(f"aten.{name}.default")
    def pad(ctx: Ctx, self: Array, padding: Ints) -> Array:
        return _pad(mode, self, padding)

    @lower(f"aten.{name}_backward.default")
    def pad_backward(ctx: Ctx, grad_output: Array, self: Array, padding: Ints) -> Array:
        return transposed(lambda x: _pad(mode, x, padding), self.shape, wide(grad_output))


for _dims in (1, 2, 3):
    _register("reflect", f"reflection_pad{_dims}d")
    _register("edge", f"replication_pad{_dims}d")


@lower("aten.im2col.default")
def im2col(ctx: Ctx, x: Array, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Array:
    """``(..., C, H, W)`` -> ``(..., C * kernel, blocks)``."""
    outer, channels = x.shape[:-3], x.shape[-3]
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(p, p) for p in padding])
    (kh, kw), (dh, dw), (sh, sw) = kernel_size, dilation, stride
    rows = np.arange(kh)[:, None] * dh + np.arange(0, x.shape[-2] - dh * (kh - 1), sh)
    cols = np.arange(kw)[:, None] * dw + np.arange(0, x.shape[-1] - dw * (kw - 1), sw)
    x = jnp.take(jnp.take(x, cols, axis=-1, mode="clip"), rows, axis=x.ndim - 2, mode="clip")
    x = jnp.moveaxis(x, -2, -3)  # (..., C, kh, kw, rows, cols)
    return x.reshape(*outer, channels * kh * kw, rows.shape[1] * cols.shape[1])


@lower("aten.col2im.default")
def col2im(ctx: Ctx, self: Array, output_size: Ints, *geometry: Ints) -> Array:
    """Blocks added up where they overlap: the transpose of :func:`im2col`."""
    return transposed(lambda x: im2col(ctx, x, *geometry), ctx.out[0].shape, wide(self))


@lower("aten.pixel_shuffle.default")
def pixel_shuffle(ctx: Ctx, self: Array, upscale_factor: int) -> Array:
    *outer, channels, height, width = self.shape
    r = upscale_factor
    x = self.reshape(*outer, channels // r**2, r, r, height, width)
    return jnp.moveaxis(x, (-4, -3), (-3, -1)).reshape(ctx.out[0].shape)


@lower("aten.pixel_unshuffle.default")
def pixel_unshuffle(ctx: Ctx, self: Array, downscale_factor: int) -> Array:
    *outer, channels, height, width = self.shape
    r = downscale_factor
    x = self.reshape(*outer, channels, height // r, r, width // r, r)
    return jnp.moveaxis(x, (-3, -1), (-4, -3)).reshape(ctx.out[0].shape)


@lower("aten.channel_shuffle.default")
def channel_shuffle(ctx: Ctx, self: Array, groups: int) -> Array:
    batch, channels, *spatial = self.shape
    return self.reshape(batch, groups, channels // groups, *spatial).swapaxes(1, 2).reshape(self.shape)
