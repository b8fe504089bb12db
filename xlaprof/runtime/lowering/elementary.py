"""Functions of one operand: elementary, rounding, and parts of numbers."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from .registry import (
    Ctx,
    direct_table,
    finfo,
    float_opmath,
    is_complex,
    is_floating,
    is_integral,
    lower,
    opmath,
    pointwise_table,
    scalar,
)


def rounding(name: str, fn: Any) -> None:
    """``name`` computes ``fn``, which leaves integers alone."""
    lower(name)(lambda ctx, self: self if is_integral(self) else fn(*opmath(ctx, self)))


pointwise_table(
    {
        "acos": jnp.arccos,
        "acosh": jnp.arccosh,
        "asin": jnp.arcsin,
        "asinh": jnp.arcsinh,
        "atan": jnp.arctan,
        "atanh": jnp.arctanh,
        "cos": jnp.cos,
        "cosh": jnp.cosh,
        "deg2rad": jnp.deg2rad,
        "exp": jnp.exp,
        "exp2": jnp.exp2,
        "expm1": jnp.expm1,
        "log": jnp.log,
        "log10": jnp.log10,
        "log1p": jnp.log1p,
        "log2": jnp.log2,
        "rad2deg": jnp.rad2deg,
        "reciprocal": lambda x: 1 / x,
        "rsqrt": lambda x: 1 / jnp.sqrt(x) if is_complex(x) else lax.rsqrt(x),
        "sin": jnp.sin,
        "sinc": jnp.sinc,
        "sinh": jnp.sinh,
        "sqrt": jnp.sqrt,
        "tan": jnp.tan,
    },
    to=float_opmath,
)
pointwise_table({"frexp.Tensor": jnp.frexp, "square": lambda x: x * x})

for _name, _fn in {"ceil": jnp.ceil, "floor": jnp.floor, "trunc": jnp.trunc, "round": jnp.round}.items():
    rounding(f"aten.{_name}.default", _fn)


@lower("aten.round.decimals")
def round_decimals(ctx: Ctx, self: Any, decimals: int = 0) -> Any:
    if is_integral(self):
        return self
    (x,) = opmath(ctx, self)
    power = 10.0 ** abs(decimals)
    return jnp.round(x * power) / power if decimals >= 0 else jnp.round(x / power) * power


@lower("aten.sign.default")
def sign(ctx: Ctx, self: Any) -> Any:
    if self.dtype == jnp.bool_:
        return self
    return (self > 0).astype(self.dtype) - (self < 0).astype(self.dtype)  # NaN has sign 0


@lower("aten.sgn.default")
def sgn(ctx: Ctx, self: Any) -> Any:
    if not is_complex(self):
        return sign(ctx, self)
    size = jnp.abs(self)
    return jnp.where(size == 0, 0, self / jnp.where(size == 0, 1, size))


@lower("aten.signbit.default")
def signbit(ctx: Ctx, self: Any) -> Any:
    if self.dtype == jnp.bool_:
        return jnp.zeros_like(self)
    return jnp.signbit(self) if is_floating(self) else self < 0


@lower("aten.angle.default")
def angle(ctx: Ctx, self: Any) -> Any:
    if is_complex(self):
        return jnp.angle(self)
    (x,) = float_opmath(ctx, self)
    return jnp.where(jnp.isnan(x), x, jnp.where(x < 0, jnp.pi, 0))


@lower("aten.nan_to_num.default")
def nan_to_num(ctx: Ctx, self: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    if is_integral(self):
        return self
    if is_complex(self):
        return lax.complex(*(nan_to_num(ctx, part, nan, posinf, neginf) for part in (self.real, self.imag)))
    limits = finfo(self.dtype)
    x = jnp.where(jnp.isnan(self), scalar(0 if nan is None else nan, self.dtype), self)
    x = jnp.where(self == jnp.inf, scalar(limits.max if posinf is None else posinf, self.dtype), x)
    return jnp.where(self == -jnp.inf, scalar(limits.min if neginf is None else neginf, self.dtype), x)


direct_table(
    {
        "abs": lambda x: jnp.abs(x),
        "neg": lambda x: -x,
        "positive": lambda x: x,
        "conj_physical _conj_physical": lambda x: jnp.conj(x),
        "frac": lambda x: x - jnp.trunc(x),
        "complex": lambda real, imag: lax.complex(*jnp.broadcast_arrays(real, imag)),
        "polar": lambda size, angle: lax.complex(*jnp.broadcast_arrays(size * jnp.cos(angle), size * jnp.sin(angle))),
    }
)
