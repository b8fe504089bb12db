"""Sampling an image at positions that are data (``grid_sample``), with its gradients by ``jax.vjp``."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from .registry import Array, Ctx, MaybeArray, lower, wide

#: ATen's ``interpolation_mode`` and ``padding_mode``
_NEAREST, _BICUBIC = 1, 2
_BORDER, _REFLECTION = 1, 2


def _bounded(x: Array, size: int, padding_mode: int, align_corners: bool) -> Array:
    """The coordinate ``x`` brought into the image; its slope is zero where it is held at a border, as in PyTorch."""
    if padding_mode == _REFLECTION:
        low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
        if span == 0:
            return jnp.zeros_like(x)
        distance = x - low
        distance = jnp.where(distance < 0, -distance, distance)
        odd = jnp.floor(distance / span) % 2 == 1
        rest = jnp.fmod(distance, span)
        x = jnp.where(odd, span - rest, rest) + low
    if padding_mode in (_BORDER, _REFLECTION):
        x = jnp.where(x <= 0, 0, jnp.where(x >= size - 1, size - 1, x))
    return x


def _cubic_taps(x: Array, bound: Callable[[Array], Array]) -> list[tuple[Array, Array]]:
    """(position, weight) of the four neighbours of ``x``, by the cubic kernel with a = -0.75."""
    a, low = -0.75, jnp.floor(x)
    t = x - low
    near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (t, 1 - t)]
    far = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in (1 + t, 2 - t)]
    weights = (far[0], near[0], near[1], far[1])
    return [(bound(low + reach), weight) for reach, weight in zip((-1, 0, 1, 2), weights, strict=True)]


def _taps(x: Array, size: int, interpolation_mode: int, padding_mode: int, align: bool) -> list[tuple[Array, Array]]:
    """What a normalised coordinate reads along one dimension: positions (as floats) with their weights."""
    x = (x + 1) / 2 * (size - 1) if align else ((x + 1) * size - 1) / 2
    bound = functools.partial(_bounded, size=size, padding_mode=padding_mode, align_corners=align)
    if interpolation_mode == _BICUBIC:
        return _cubic_taps(x, bound)
    x = bound(x)
    if interpolation_mode == _NEAREST:
        return [(jnp.round(x), jnp.ones_like(x))]
    low = jnp.floor(x)
    return [(low, 1 - (x - low)), (low + 1, x - low)]


@lower("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def grid_sampler(
    ctx: Ctx, input: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Array:
    """``input`` ``(N, C, *spatial)`` at ``grid`` ``(N, *out, len(spatial))`` -> ``(N, C, *out)``."""
    input, grid = wide(input), wide(grid)
    batch, channels, *spatial = input.shape
    flat = input.reshape(batch, channels, -1)
    per_dim = [
        _taps(grid[..., -1 - d], size, interpolation_mode, padding_mode, align_corners)
        for d, size in enumerate(spatial)
    ]

    def terms() -> Iterator[Array]:
        for taps in itertools.product(*per_dim):
            place, inside = jnp.zeros(grid.shape[:-1], jnp.int64), jnp.ones((), jnp.bool_)
            for (position, _), size in zip(taps, spatial, strict=True):
                inside = inside & (position >= 0) & (position < size)
                place = place * size + jnp.clip(position, 0, size - 1).astype(jnp.int64)
            read = jnp.take_along_axis(flat, place.reshape(batch, 1, -1), axis=2, mode="clip")
            read = read.reshape(batch, channels, *grid.shape[1:-1])
            weight = functools.reduce(operator.mul, [w for _, w in taps])
            yield jnp.where(inside[:, None], read, 0) * weight[:, None]

    return functools.reduce(operator.add, terms())


@lower("aten.grid_sampler_2d_backward.default", "aten.grid_sampler_3d_backward.default")
def grid_sampler_backward(
    ctx: Ctx, grad_output: Array, input: Array, grid: Array, *modes_and_mask: Any
) -> tuple[MaybeArray, MaybeArray]:
    *modes, mask = modes_and_mask
    _, gradient = jax.vjp(lambda *given: grid_sampler(ctx, *given, *modes), wide(input), wide(grid))
    of_input, of_grid = gradient(wide(grad_output))
    return of_input if mask[0] else None, of_grid if mask[1] else None
