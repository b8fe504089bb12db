"""Copies, casts and fills."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from .registry import Ctx, is_complex, is_floating, lower, scalar


def cast(x: Any, dtype: Any) -> Any:
    """``x`` as ``dtype``, converting as C does: complex numbers lose their imaginary part, integers wrap."""
    if is_complex(x) and not jnp.issubdtype(dtype, jnp.complexfloating):
        x = x != 0 if dtype == jnp.bool_ else x.real
    if is_floating(x) and jnp.issubdtype(dtype, jnp.integer) and jnp.dtype(dtype).itemsize < 8:
        x = x.astype(jnp.int64)  # XLA saturates: -1.0 would be the uint8 0, not 255
    return x.astype(dtype)


@lower("aten._to_copy.default")
def to_copy(ctx: Ctx, self: Any, dtype: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
    return cast(self, ctx.out[0].jax)


@lower("prims.convert_element_type.default")  # Dynamo's cast of a Python number that changes
def convert_element_type(ctx: Ctx, a: Any, dtype: Any) -> Any:
    return cast(a, ctx.out[0].jax)


@lower("aten.clone.default", "aten.lift.default", "aten.lift_fresh_copy.default", "aten.alias_copy.default")
def clone(ctx: Ctx, self: Any, memory_format: Any = None) -> Any:
    return self


@lower("aten.copy.default")
def copy(ctx: Ctx, self: Any, src: Any, non_blocking: bool = False) -> Any:
    return jnp.broadcast_to(cast(src, self.dtype), self.shape)


@lower("aten.fill.Scalar", "aten.fill.Tensor")
def fill(ctx: Ctx, self: Any, value: Any) -> Any:
    return jnp.broadcast_to(scalar(value, self.dtype), self.shape)


@lower("aten.zero.default")
def zero(ctx: Ctx, self: Any) -> Any:
    return jnp.zeros_like(self)
