"""Tensors made from nothing: constants, ranges, triangles."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .conversion import cast
from .registry import Ctx, Unsupported, direct_table, lower, overloads, scalar

# Memory that is not initialised may as well be zero.
_EMPTY = "empty.memory_format empty_like empty_strided empty_permuted new_empty new_empty_strided"


_ZEROS = f"zeros zeros_like new_zeros _efficientzerotensor {_EMPTY}"

lower(*overloads(_ZEROS))(lambda ctx, *args, **kwargs: jnp.zeros(ctx.out[0].shape, ctx.out[0].jax))
lower(*overloads("ones ones_like new_ones"))(lambda ctx, *args, **kwargs: jnp.ones(ctx.out[0].shape, ctx.out[0].jax))
lower(*overloads("scalar_tensor"))(lambda ctx, s, **kwargs: scalar(s, ctx.out[0].jax))


@lower(*overloads("full full_like new_full"))
def full(ctx: Ctx, like: Any, *args: Any, **kwargs: Any) -> Any:
    value = kwargs["fill_value"] if "fill_value" in kwargs else args[-1]
    return jnp.broadcast_to(scalar(value, ctx.out[0].jax), ctx.out[0].shape)


def _range(names: str, static: tuple[str, ...]) -> None:
    """``names`` give numbers from ``start`` (or 0) in steps of ``step`` (or 1), as many as the output holds."""

    @lower(*overloads(names), static=static)
    def range_(ctx: Ctx, *bounds: Any, **kwargs: Any) -> Any:
        given = dict(zip(static, bounds, strict=False))
        # Computed in 64 bits and rounded once, as PyTorch's CPU kernels do.
        wide = jnp.int64 if jnp.issubdtype(ctx.out[0].jax, jnp.integer) else jnp.float64
        steps = jnp.arange(ctx.out[0].shape[0], dtype=wide) * scalar(given.get("step", 1), wide)
        return scalar(given.get("start", 0), wide) + steps


_range("arange", ("end",))
_range("arange.start range", ("start", "end"))
_range("arange.start_step range.step", ("start", "end", "step"))


#: overloads of the ranges between two ends, each end a tensor or a number
_ENDS = ("default", "Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")


@lower(*(f"aten.linspace.{ends}" for ends in _ENDS))
def linspace(ctx: Ctx, start: Any, end: Any, steps: int, **kwargs: Any) -> Any:
    out = ctx.out[0].jax
    if jnp.issubdtype(out, jnp.complexfloating):
        return _linspace(start, end, steps, jnp.complex128)
    if jnp.issubdtype(out, jnp.integer):
        # The result is truncated: 6.9999... becomes 6, not 7, so sums must be rounded as in PyTorch's kernel.
        start, end = scalar(start, jnp.int64), scalar(end, jnp.int64)
        return cast(_linspace(start, end, steps, jnp.float64, _fused_multiply_add), out)
    return _linspace(start, end, steps, jnp.float64)


def _fused_multiply_add(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` of float64, rounded once, for an integer ``b`` below 2**27.

    (T. J. Dekker, A floating-point technique for extending the available precision, 1971: the product as a sum of two
    that are exact, and what adding the larger loses as a number of its own.)
    """
    high = jax.lax.reduce_precision(a, exponent_bits=11, mantissa_bits=25)
    larger, smaller = high * b, (a - high) * b
    total = c + larger
    part = total - c
    lost = (c - (total - part)) + (larger - part)
    return total + (lost + smaller)


def _linspace(start: Any, end: Any, steps: int, dtype: Any, multiply_add: Any = lambda a, b, c: a * b + c) -> Any:
    """From both ends to the middle, so that both are hit exactly."""
    if steps == 0:
        return jnp.zeros((0,), dtype)
    start, end = scalar(start, dtype), scalar(end, dtype)
    # XLA multiplies by the reciprocal of a divisor it knows, which rounds twice.
    step = (end - start) / jax.lax.optimization_barrier(jnp.asarray(max(steps - 1, 1), dtype))
    position = jnp.arange(steps)
    ascending = multiply_add(step, position.astype(dtype), start)
    descending = multiply_add(-step, (steps - 1 - position).astype(dtype), end)
    return jnp.where(position < max(steps // 2, 1), ascending, descending)


@lower(*(f"aten.logspace.{ends}" for ends in _ENDS))
def logspace(ctx: Ctx, start: Any, end: Any, steps: int, base: float = 10.0, **kwargs: Any) -> Any:
    if jnp.issubdtype(ctx.out[0].jax, jnp.integer):
        raise Unsupported("logspace of integers")
    wide = jnp.complex128 if jnp.issubdtype(ctx.out[0].jax, jnp.complexfloating) else jnp.float64
    return jnp.power(jnp.asarray(base, wide), _linspace(start, end, steps, wide))


@lower("aten.eye.default", "aten.eye.m")
def eye(ctx: Ctx, *args: Any, **kwargs: Any) -> Any:
    rows, columns = ctx.out[0].shape
    return jnp.eye(rows, columns, dtype=ctx.out[0].jax)


direct_table(
    {
        "tril": lambda x, diagonal=0: jnp.tril(x, diagonal),
        "triu": lambda x, diagonal=0: jnp.triu(x, diagonal),
        "tril_indices": lambda row, col, offset=0, **_: jnp.stack(jnp.tril_indices(row, offset, col)),
        "triu_indices": lambda row, col, offset=0, **_: jnp.stack(jnp.triu_indices(row, offset, col)),
        "vander": lambda x, N=None, increasing=False: jnp.vander(x, N, increasing),
    }
)
