"""Comparisons, logic, bits, tests of values, and the choice between two."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from .registry import Ctx, direct_table, iinfo, is_complex, is_integral, lower, pointwise_table, promote


def _shift_left(x: Any, by: Any) -> Any:
    width = iinfo(x.dtype).bits
    outside = (by < 0) | (by >= width)
    return jnp.where(outside, 0, jnp.left_shift(x, jnp.where(outside, 0, by)))


def _shift_right(x: Any, by: Any) -> Any:
    # A shift out of range keeps the sign: -1 for negative numbers, 0 for the rest.
    width = iinfo(x.dtype).bits
    outside = (by < 0) | (by >= width)
    shifted = jnp.right_shift(x, jnp.where(outside, width - 1, by))
    return jnp.where(outside, 0, shifted) if jnp.issubdtype(x.dtype, jnp.unsignedinteger) else shifted


def _overloads(name: str, *overloads: str) -> str:
    return " ".join(f"{name}.{overload}" for overload in overloads)


_COMPARISONS = {
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
    "__lshift__": _shift_left,
    "__rshift__": _shift_right,
}
_BITWISE = {"bitwise_and": jnp.bitwise_and, "bitwise_or": jnp.bitwise_or, "bitwise_xor": jnp.bitwise_xor}
_SHIFTS = {"bitwise_left_shift": _shift_left, "bitwise_right_shift": _shift_right}

pointwise_table(
    {_overloads(name, "Tensor", "Scalar"): fn for name, fn in _COMPARISONS.items()}
    | {_overloads(name, "Tensor", "Scalar", "Scalar_Tensor"): fn for name, fn in _BITWISE.items()}
    | {_overloads(name, "Tensor", "Tensor_Scalar", "Scalar_Tensor"): fn for name, fn in _SHIFTS.items()},
    tensors=2,
    to=promote,
)


def _as_bool(ctx: Ctx, *args: Any) -> tuple[Any, ...]:
    return tuple(a.astype(bool) for a in args)


pointwise_table(
    {"logical_and": jnp.bitwise_and, "logical_or": jnp.bitwise_or, "logical_xor": jnp.bitwise_xor},
    tensors=2,
    to=_as_bool,
)


def _is_infinity(x: Any, infinity: float) -> Any:
    return jnp.zeros(x.shape, bool) if is_integral(x) else x == infinity


direct_table(
    {
        "logical_not": lambda x: ~x.astype(bool),
        "bitwise_not": lambda x: ~x,
        "isnan": lambda x: x != x,
        "isinf": lambda x: jnp.isinf(x),
        "isfinite": lambda x: jnp.isfinite(x),
        "isposinf": lambda x: _is_infinity(x, jnp.inf),
        "isneginf": lambda x: _is_infinity(x, -jnp.inf),
        "isreal": lambda x: x.imag == 0 if is_complex(x) else jnp.ones(x.shape, bool),
    }
)


@lower("aten.where.self", "aten.where.Scalar", "aten.where.ScalarSelf", "aten.where.ScalarOther")
def where(ctx: Ctx, condition: Any, self: Any, other: Any) -> Any:
    self, other = promote(ctx, self, other)
    return jnp.where(condition.astype(bool), self, other)


@lower("aten.isin.Tensor_Tensor", "aten.isin.Tensor_Scalar", "aten.isin.Scalar_Tensor")
def isin(ctx: Ctx, elements: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    elements, test_elements = promote(ctx, elements, test_elements)
    return jnp.isin(elements, test_elements, invert=invert)
