"""Arithmetic of two and three operands: sums, products, quotients, remainders, powers, bounds."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .registry import (
    Ctx,
    Unsupported,
    direct_table,
    float_opmath,
    is_complex,
    is_floating,
    is_integral,
    lower,
    opmath,
    overloads,
    pointwise_table,
    result_dtype,
    rounded,
    scalar,
)


@lower("aten.add.Tensor", "aten.add.Scalar")
def add(ctx: Ctx, self: Any, other: Any, alpha: Any = 1) -> Any:
    self, other = opmath(ctx, self, other)
    return self + _times(ctx, other, alpha)


@lower("aten.sub.Tensor", "aten.sub.Scalar")
def sub(ctx: Ctx, self: Any, other: Any, alpha: Any = 1) -> Any:
    self, other = opmath(ctx, self, other)
    return self - _times(ctx, other, alpha)


@lower("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(ctx: Ctx, self: Any, other: Any, alpha: Any = 1) -> Any:
    self, other = opmath(ctx, self, other)
    return other - _times(ctx, self, alpha)


def _times(ctx: Ctx, x: Any, alpha: Any) -> Any:
    """``alpha * x``, with no more digits of ``alpha`` than the result's dtype has."""
    return x if _is_one(alpha) else x * rounded(scalar(alpha, x.dtype), ctx.out[0].jax)


def _scaled(x: Any, value: Any) -> Any:
    return x if _is_one(value) else x * scalar(value, x.dtype)


def _is_one(value: Any) -> bool:
    """Is this the constant 1 of the graph, rather than a number read from the packed scalars?"""
    return not isinstance(value, jax.Array) and value == 1


@lower("aten.mul.Tensor", "aten.mul.Scalar")
def mul(ctx: Ctx, self: Any, other: Any) -> Any:
    self, other = opmath(ctx, self, other, exact=True)
    return self * other


@lower("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor")
def div(ctx: Ctx, self: Any, other: Any) -> Any:
    self, other = float_opmath(ctx, self, other, exact=True)
    return self / other


@lower("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(ctx: Ctx, self: Any, other: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return div(ctx, self, other)
    dtype, by_number = result_dtype(ctx, self, other), ctx.is_weak(other)
    self, other = opmath(ctx, self, other, exact=True)
    if rounding_mode == "floor":
        return _floor_divide(self, other)
    if is_integral(self):
        return lax.div(*jnp.broadcast_arrays(self, other))
    quotient = self / other
    # By a tensor, 7.5 / 0.3 is 25 in float16; by a number, 24.99.
    return jnp.trunc(quotient if by_number else rounded(quotient, dtype))


@lower("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(ctx: Ctx, self: Any, other: Any) -> Any:
    return _floor_divide(*opmath(ctx, self, other, exact=True))


def _floor_divide(a: Any, b: Any) -> Any:
    if not is_floating(a):
        return jnp.floor_divide(a, b)
    # As c10::div_floor_floating: exact where a / b would round up to an integer that b does not reach.
    mod = jnp.fmod(a, b)
    quotient = (a - mod) / b
    quotient = jnp.where((mod != 0) & ((b < 0) != (mod < 0)), quotient - 1, quotient)
    floor = jnp.floor(quotient)
    floor = jnp.where(quotient - floor > 0.5, floor + 1, floor)
    floor = jnp.where(quotient == 0, jnp.copysign(jnp.zeros_like(quotient), a / b), floor)
    return jnp.where(b == 0, a / b, floor)


@lower("aten.pow.Tensor_Scalar", static=("exponent",))
def pow_scalar(ctx: Ctx, self: Any, exponent: Any) -> Any:
    base, power = opmath(ctx, self, exponent)
    if is_floating(base) and not isinstance(exponent, jax.Array):
        exact = _SIMPLE_POWERS.get(exponent)
        if exact is not None:
            return exact(base)
    return _power(base, power)


_SIMPLE_POWERS: dict[float, Any] = {
    0.5: jnp.sqrt,
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    -0.5: lambda x: 1 / jnp.sqrt(x),
    -1: lambda x: 1 / x,
    -2: lambda x: 1 / (x * x),
}


def _integer_power(base: Any, exponent: Any) -> Any:
    """By squaring, for every bit of the exponent: jax's looks at six of them, and what wraps around needs all."""

    def step(_: int, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        result, square, rest = state
        return jnp.where(rest & 1, result * square, result), square * square, rest >> 1

    base, exponent = jnp.broadcast_arrays(base, exponent)
    state = jnp.ones_like(base), base, exponent
    return lax.fori_loop(0, exponent.dtype.itemsize * 8, step, state)[0]


def _power(base: Any, exponent: Any) -> Any:
    if is_complex(base):
        # jax computes 0 ** x by log(0) = -inf, which gives NaN
        powered = jnp.power(base, exponent)
        of_zero = jnp.where(exponent == 0, jnp.ones_like(powered), jnp.zeros_like(powered))
        return jnp.where((base == 0) & ((exponent.real > 0) | (exponent == 0)), of_zero, powered)
    if not is_integral(base):
        return jnp.power(base, exponent)
    if base.dtype == jnp.bool_:
        return base | ~exponent
    result = _integer_power(base, jnp.maximum(exponent, 0))
    if jnp.issubdtype(base.dtype, jnp.unsignedinteger):
        return result
    # The reciprocal of an integer is one only for 1 and -1.
    inverse = jnp.where(base == 1, 1, jnp.where(base == -1, 1 - 2 * (exponent % 2), 0))
    return jnp.where(exponent < 0, inverse, result)


@lower("aten.addcmul.default")
def addcmul(ctx: Ctx, self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
    self, tensor1, tensor2 = opmath(ctx, self, tensor1, tensor2)
    return self + _scaled(tensor1, value) * tensor2


@lower("aten.addcdiv.default")
def addcdiv(ctx: Ctx, self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
    self, tensor1, tensor2 = opmath(ctx, self, tensor1, tensor2)
    return self + _scaled(tensor1, value) / tensor2


@lower("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(ctx: Ctx, self: Any, end: Any, weight: Any) -> Any:
    self, end = opmath(ctx, self, end)
    weight = jnp.asarray(weight).astype(self.dtype)
    near = jnp.abs(weight) < 0.5
    return jnp.where(near, self + weight * (end - self), end - (end - self) * (1 - weight))


@lower("aten.clamp.default", "aten.clamp.Tensor")
def clamp(ctx: Ctx, self: Any, min: Any = None, max: Any = None) -> Any:
    self, low, high = opmath(ctx, self, min, max)
    if low is not None:
        self = jnp.maximum(self, low)
    return self if high is None else jnp.minimum(self, high)


def _logaddexp2(x: Any, y: Any) -> Any:
    if is_complex(x):
        raise Unsupported("complex logaddexp2")
    return jnp.logaddexp2(x, y)


def _gcd(a: Any, b: Any) -> Any:
    # Without a sign: the smallest integer has no positive counterpart, and jax's loop would never end.
    unsigned = jnp.dtype(f"uint{a.dtype.itemsize * 8}")
    return jnp.gcd(jnp.abs(a).astype(unsigned), jnp.abs(b).astype(unsigned)).astype(a.dtype)


def _lcm(a: Any, b: Any) -> Any:
    divisor = _gcd(a, b)
    return jnp.where(divisor == 0, 0, jnp.abs(a // jnp.where(divisor == 0, 1, divisor) * b))


pointwise_table(
    {
        "remainder.Tensor remainder.Scalar remainder.Scalar_Tensor": jnp.remainder,
        "fmod.Tensor fmod.Scalar": jnp.fmod,
        "maximum clamp_min clamp_min.Tensor": jnp.maximum,
        "minimum clamp_max clamp_max.Tensor": jnp.minimum,
        "fmax": jnp.fmax,
        "fmin": jnp.fmin,
        "heaviside": lambda x, values: jnp.where(x == 0, values, (x > 0).astype(x.dtype)),
        "gcd": _gcd,
        "lcm": _lcm,
        "pow.Tensor_Tensor pow.Scalar": _power,
    },
    tensors=2,
)
pointwise_table(
    {
        "atan2": jnp.arctan2,
        "copysign.Tensor copysign.Scalar": jnp.copysign,
        "hypot": jnp.hypot,
        "logaddexp": jnp.logaddexp,
        "logaddexp2": _logaddexp2,
        "ldexp.Tensor": lambda x, exponent: x * jnp.exp2(exponent),
    },
    tensors=2,
    to=float_opmath,
)
# Neighbours are those of the tensors' own dtype: not widened.
direct_table({"nextafter": lambda x, other: jnp.nextafter(x, other.astype(x.dtype))})


def _product_with_log(log: Any, names: str) -> None:
    """``x * log(y)``, where 0 times anything but NaN is 0. PyTorch rounds the logarithm to the result's dtype first."""

    @lower(*overloads(names))
    def product(ctx: Ctx, self: Any, other: Any) -> Any:
        x, y = float_opmath(ctx, self, other)
        return jnp.where(jnp.isnan(y), jnp.nan, jnp.where(x == 0, 0, x * rounded(log(y), ctx.out[0].jax)))


_product_with_log(jnp.log, "xlogy.Tensor xlogy.Scalar_Self xlogy.Scalar_Other")
_product_with_log(jnp.log1p, "special_xlog1py special_xlog1py.self_scalar special_xlog1py.other_scalar")
