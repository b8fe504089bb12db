"""Tensors joined, repeated, mirrored, shifted and padded: copies, not views (those are the tape's own)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from .pieces import diagonal_scatter
from .registry import Ctx, direct_table, lower, scalar


@lower("aten.cat.default")
def cat(ctx: Ctx, tensors: Any, dim: int = 0) -> Any:
    # A 1-dimensional empty tensor joins anything, for PyTorch's history's sake.
    whole = [t.astype(ctx.out[0].jax) for t in tensors if t.shape != (0,)]
    return jnp.concatenate(whole, dim) if whole else jnp.zeros(ctx.out[0].shape, ctx.out[0].jax)


@lower("aten.stack.default")
def stack(ctx: Ctx, tensors: Any, dim: int = 0) -> Any:
    return jnp.stack([t.astype(ctx.out[0].jax) for t in tensors], dim)


def _roll(x: Any, shifts: Any, dims: Any = ()) -> Any:
    if x.size == 0:
        return x
    return jnp.roll(x, tuple(shifts), tuple(dims)) if dims else jnp.roll(x, shifts[0])


@lower("aten.constant_pad_nd.default", static=("value",))
def constant_pad(ctx: Ctx, self: Any, pad: Any, value: Any = 0) -> Any:
    # From the last dimension backwards, (before, after) each; a negative one crops.
    widths = [(0, 0, 0)] * self.ndim
    for i in range(len(pad) // 2):
        widths[self.ndim - 1 - i] = (pad[2 * i], pad[2 * i + 1], 0)
    return lax.pad(self, scalar(value, self.dtype), widths)


@lower("aten.diag_embed.default")
def diag_embed(ctx: Ctx, self: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    return diagonal_scatter(jnp.zeros(ctx.out[0].shape, self.dtype), self, offset, dim1, dim2)


@lower("aten.block_diag.default")
def block_diag(ctx: Ctx, tensors: Any) -> Any:
    out = jnp.zeros(ctx.out[0].shape, ctx.out[0].jax)
    row = column = 0
    for t in tensors:
        block = jnp.atleast_2d(t).astype(out.dtype)
        out = lax.dynamic_update_slice(out, block, (row, column))
        row, column = row + block.shape[0], column + block.shape[1]
    return out


direct_table(
    {
        "roll": _roll,
        "flip": lambda x, dims: jnp.flip(x, tuple(dims)) if x.ndim else x,
        "rot90": lambda x, k=1, dims=(0, 1): jnp.rot90(x, k, tuple(dims)),
        "repeat tile": lambda x, repeats: jnp.tile(x, tuple(repeats)),
    }
)
