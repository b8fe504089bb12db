"""Comparisons, logic, bits, tests of values, and the choice between two."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from .registry import Ctx, iinfo, is_complex, is_integral, lower, pointwise_table, promote


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


@lower("aten.logical_not.default")
def logical_not(ctx: Ctx, self: Any) -> Any:
    return ~self.astype(bool)


@lower("aten.bitwise_not.default")
def bitwise_not(ctx: Ctx, self: Any) -> Any:
    return ~self


@lower("aten.isnan.default")
def isnan(ctx: Ctx, self: Any) -> Any:
    return self != self


lower("aten.isinf.default")(lambda ctx, self: jnp.isinf(self))
lower("aten.isfinite.default")(lambda ctx, self: jnp.isfinite(self))


def _is_infinity(name: str, infinity: float) -> None:
    @lower(f"aten.{name}.default")
    def test(ctx: Ctx, self: Any) -> Any:
        return jnp.zeros(self.shape, bool) if is_integral(self) else self == infinity


_is_infinity("isposinf", jnp.inf)
_is_infinity("isneginf", -jnp.inf)


@lower("aten.isreal.default")
def isreal(ctx: Ctx, self: Any) -> Any:
    return self.imag == 0 if is_complex(self) else jnp.ones(self.shape, bool)


@lower("aten.where.self", "aten.where.Scalar", "aten.where.ScalarSelf", "aten.where.ScalarOther")
def where(ctx: Ctx, condition: Any, self: Any, other: Any) -> Any:
    self, other = promote(ctx, self, other)
    return jnp.where(condition.astype(bool), self, other)


@lower("aten.isin.Tensor_Tensor", "aten.isin.Tensor_Scalar", "aten.isin.Scalar_Tensor")
def isin(ctx: Ctx, elements: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    elements, test_elements = promote(ctx, elements, test_elements)
    return jnp.isin(elements, test_elements, invert=invert)
