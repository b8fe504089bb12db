"""Copies, casts and fills."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from .registry import Ctx, direct_table, is_complex, is_floating, lower, scalar


def cast(x: Any, dtype: Any) -> Any:
    """``x`` as ``dtype``, converting as C does: complex numbers lose their imaginary part, integers wrap."""
    if is_complex(x) and not jnp.issubdtype(dtype, jnp.complexfloating):
        x = x != 0 if dtype == jnp.bool_ else x.real
    if is_floating(x) and jnp.issubdtype(dtype, jnp.integer) and jnp.dtype(dtype).itemsize < 8:
        x = x.astype(jnp.int64)  # XLA saturates: -1.0 would be the uint8 0, not 255
    return x.astype(dtype)


@lower("aten._to_copy.default", "prims.convert_element_type.default")  # Dynamo's cast of a Python number that changes
def to_copy(ctx: Ctx, self: Any, dtype: Any = None, **options: Any) -> Any:
    return cast(self, ctx.out[0].jax)


direct_table(
    {
        "clone lift lift_fresh_copy alias_copy": lambda x, memory_format=None: x,
        "copy": lambda x, src, non_blocking=False: jnp.broadcast_to(cast(src, x.dtype), x.shape),
        "fill.Scalar fill.Tensor": lambda x, value: jnp.broadcast_to(scalar(value, x.dtype), x.shape),
        "zero": lambda x: jnp.zeros_like(x),
    }
)
