"""Dtypes that PyTorch's kernels refuse and its meta kernels accept, in binary operators: see :mod:`.checks`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from xlaprof.runtime.trace.ops import Op

from .checks import CHECKS
from .meta_functions import SHAPES
from .rehearse import rehearse

Check = Callable[..., bool]

_COMPLEX = {torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble"}
#: dtypes that do not promote with others
_ALONE = {torch.uint16, torch.uint32, torch.uint64}


def _register(check: Check, *names: str) -> None:
    """Check the overloads ``names`` and their in-place forms by ``check``, after the checks they already have."""
    for name in names:
        packet, overload = name.split(".")
        for key in (f"aten.{packet}.{overload}", f"aten.{packet}_.{overload}"):
            before = CHECKS.get(key)
            CHECKS[key] = check if before is None else _either(before, check)


def _either(one: Check, other: Check) -> Check:
    return lambda *args, **kwargs: one(*args, **kwargs) or other(*args, **kwargs)


# -- booleans are not subtracted ----------------------------------------------------------------------


def _is_bool(value: Any) -> bool:
    return value.dtype is torch.bool if isinstance(value, torch.Tensor) else isinstance(value, bool)


def _subtraction(*args: Any, **_: Any) -> bool:
    return any(map(_is_bool, args[:2]))


_register(_subtraction, "sub.Tensor", "sub.Scalar", "rsub.Tensor", "rsub.Scalar")


def _alpha(*args: Any, alpha: Any = 1, **_: Any) -> bool:
    if isinstance(alpha, bool):
        return not all(map(_is_bool, args[:2]))
    return isinstance(alpha, (float, complex)) and not args[0].dtype.is_floating_point


_register(_alpha, "add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar")

# -- integers have no negative powers -----------------------------------------------------------------


def _power(base: Any, exponent: Any) -> bool:
    integral = not (base.dtype.is_floating_point or base.dtype.is_complex)
    return integral and isinstance(exponent, int) and exponent < 0


def _power_shape(base: torch.Tensor, exponent: Any) -> torch.Tensor:
    if base.dtype is torch.bool and isinstance(exponent, bool):
        return torch.empty_like(base)
    return torch.ops.aten.pow.Tensor_Scalar(base, exponent)  # type: ignore[no-any-return]


_register(_power, "pow.Tensor_Scalar")
SHAPES.setdefault("aten.pow.Tensor_Scalar", _power_shape)

# -- nor quotients in addcdiv ---------------------------------------------------------------------------


def _integral_quotient(base: Any, one: Any, other: Any, **_: Any) -> bool:
    return not any(t.dtype.is_floating_point or t.dtype.is_complex for t in (one, other))


_register(_integral_quotient, "addcdiv.default")

# -- complex numbers have no order --------------------------------------------------------------------


def _unordered(kernel: str) -> Check:
    def check(*args: Any, **kwargs: Any) -> bool:
        for value in (*args, *kwargs.values()):
            dtype = value.dtype if isinstance(value, torch.Tensor) else None
            if dtype in _COMPLEX or isinstance(value, complex):
                name = _COMPLEX.get(dtype, "ComplexFloat")  # type: ignore[arg-type]
                raise NotImplementedError(f"\"{kernel}\" not implemented for '{name}'")
        return False

    return check


for _name in ("lt", "le", "gt", "ge", "remainder", "fmod"):
    _register(_unordered(_name), f"{_name}.Tensor", f"{_name}.Scalar")
for _name in ("atan2", "floor_divide", "hypot", "nextafter"):
    _register(_unordered(_name), f"{_name}.default")


def _clamp(*args: Any, **kwargs: Any) -> bool:
    if _complex_tensor(*args, *kwargs.values()):
        raise NotImplementedError("clamp is not supported for complex types")
    return False


for _name in ("clamp", "clamp_min", "clamp_max"):
    _register(_clamp, f"{_name}.default", f"{_name}.Tensor")


def _complex_tensor(*args: Any, **_: Any) -> bool:
    return any(isinstance(value, torch.Tensor) and value.dtype.is_complex for value in args)


for _name in ("maximum", "minimum", "fmax", "fmin", "heaviside"):  # each has its own message
    _register(_complex_tensor, f"{_name}.default")
_register(_unordered("div"), "div.Tensor_mode", "div.Scalar_mode")

# -- unsigned integers of more than a byte ------------------------------------------------------------


def _promoted_alone(*args: Any, **_: Any) -> bool:
    dtypes = {value.dtype for value in args if isinstance(value, torch.Tensor)}
    return len(dtypes) > 1 and not _ALONE.isdisjoint(dtypes)


for _name in ("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod"):
    _register(_promoted_alone, f"{_name}.Tensor")
for _name in ("maximum", "minimum", "fmax", "fmin", "floor_divide", "atan2"):
    _register(_promoted_alone, f"{_name}.default")
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    _register(_promoted_alone, f"{_name}.Tensor")

# -- operators that promote nothing -------------------------------------------------------------------

#: operator -> positions of the arguments that must have one dtype
_OF_ONE_DTYPE = {
    "mm.default": (0, 1),
    "bmm.default": (0, 1),
    "addmm.default": (0, 1, 2),
    "baddbmm.default": (0, 1, 2),
    "addbmm.default": (0, 1, 2),
    "mv.default": (0, 1),
    "addmv.default": (0, 1, 2),
    "dot.default": (0, 1),
    "vdot.default": (0, 1),
    "convolution.default": (0, 1, 2),
    "heaviside.default": (0, 1),
    "lerp.Scalar": (0, 1),
    "lerp.Tensor": (0, 1, 2),
    "index_put.default": (0, 2),
    "_index_put_impl.default": (0, 2),
    "index_add.default": (0, 3),
    "index_copy.default": (0, 3),
    "put.default": (0, 2),
    "scatter.src": (0, 3),
    "scatter_add.default": (0, 3),
    "scatter_reduce.two": (0, 3),
    "grid_sampler_2d.default": (0, 1),
    "_cdist_forward.default": (0, 1),
}


def _of_one_dtype(name: str, places: tuple[int, ...]) -> Check:
    packet, overload = name.split(".")

    def check(*args: Any, **kwargs: Any) -> bool:
        given = [args[i] for i in places if i < len(args)]
        if len({value.dtype for value in given if isinstance(value, torch.Tensor)}) > 1:
            rehearse(Op(getattr(getattr(torch.ops.aten, packet), overload)), args, kwargs)
        return False  # the CPU accepts the call

    return check


for _name, _places in _OF_ONE_DTYPE.items():
    _register(_of_one_dtype(_name, _places), _name)


def loses_imaginary_part(args: tuple[Any, ...]) -> bool:
    """Would an operation that writes to its first argument put complex numbers into a real tensor?"""
    target = args[0] if args else None
    if not isinstance(target, torch.Tensor) or target.dtype.is_complex:
        return False
    return any(isinstance(v, complex) or (isinstance(v, torch.Tensor) and v.dtype.is_complex) for v in args[1:])
