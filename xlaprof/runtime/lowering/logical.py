"""Comparisons, logic, bits, tests of values, and the choice between two."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from xlaprof.runtime.lowering.registry import Ctx, iinfo, is_complex, is_integral, lower, promote


def _comparison(name: str, fn: Any) -> None:
    @lower(f"aten.{name}.Tensor", f"aten.{name}.Scalar")
    def compare(ctx: Ctx, self: Any, other: Any) -> Any:
        return fn(*promote(ctx, self, other))


for _name, _fn in {
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
}.items():
    _comparison(_name, _fn)


@lower("aten.logical_and.default")
def logical_and(ctx: Ctx, self: Any, other: Any) -> Any:
    return self.astype(bool) & other.astype(bool)


@lower("aten.logical_or.default")
def logical_or(ctx: Ctx, self: Any, other: Any) -> Any:
    return self.astype(bool) | other.astype(bool)


@lower("aten.logical_xor.default")
def logical_xor(ctx: Ctx, self: Any, other: Any) -> Any:
    return self.astype(bool) ^ other.astype(bool)


@lower("aten.logical_not.default")
def logical_not(ctx: Ctx, self: Any) -> Any:
    return ~self.astype(bool)


def _bitwise(name: str, fn: Any, with_number: str = "Scalar") -> None:
    @lower(f"aten.{name}.Tensor", f"aten.{name}.{with_number}", f"aten.{name}.Scalar_Tensor")
    def bitwise(ctx: Ctx, self: Any, other: Any) -> Any:
        return fn(*promote(ctx, self, other))


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


_bitwise("bitwise_and", jnp.bitwise_and)
_bitwise("bitwise_or", jnp.bitwise_or)
_bitwise("bitwise_xor", jnp.bitwise_xor)
_bitwise("bitwise_left_shift", _shift_left, "Tensor_Scalar")
_bitwise("bitwise_right_shift", _shift_right, "Tensor_Scalar")


@lower("aten.__lshift__.Tensor", "aten.__lshift__.Scalar")
def lshift(ctx: Ctx, self: Any, other: Any) -> Any:
    return _shift_left(*promote(ctx, self, other))


@lower("aten.__rshift__.Tensor", "aten.__rshift__.Scalar")
def rshift(ctx: Ctx, self: Any, other: Any) -> Any:
    return _shift_right(*promote(ctx, self, other))


@lower("aten.bitwise_not.default")
def bitwise_not(ctx: Ctx, self: Any) -> Any:
    return ~self


@lower("aten.isnan.default")
def isnan(ctx: Ctx, self: Any) -> Any:
    return self != self


@lower("aten.isinf.default")
def isinf(ctx: Ctx, self: Any) -> Any:
    return jnp.isinf(self)


@lower("aten.isfinite.default")
def isfinite(ctx: Ctx, self: Any) -> Any:
    return jnp.isfinite(self)


@lower("aten.isposinf.default")
def isposinf(ctx: Ctx, self: Any) -> Any:
    return jnp.zeros(self.shape, bool) if is_integral(self) else self == jnp.inf


@lower("aten.isneginf.default")
def isneginf(ctx: Ctx, self: Any) -> Any:
    return jnp.zeros(self.shape, bool) if is_integral(self) else self == -jnp.inf


@lower("aten.isreal.default")
def isreal(ctx: Ctx, self: Any) -> Any:
    return self.imag == 0 if is_complex(self) else jnp.ones(self.shape, bool)


@lower(
    "aten.where.self",
    "aten.where.Scalar",
    "aten.where.ScalarSelf",
    "aten.where.ScalarOther",
)
def where(ctx: Ctx, condition: Any, self: Any, other: Any) -> Any:
    self, other = promote(ctx, self, other)
    return jnp.where(condition.astype(bool), self, other)


@lower("aten.isin.Tensor_Tensor", "aten.isin.Tensor_Scalar", "aten.isin.Scalar_Tensor")
def isin(ctx: Ctx, elements: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    elements, test_elements = promote(ctx, elements, test_elements)
    return jnp.isin(elements, test_elements, invert=invert)
