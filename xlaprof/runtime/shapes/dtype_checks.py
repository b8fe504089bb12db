"""Dtypes that PyTorch's kernels refuse and its meta kernels accept, in binary operators: see :mod:`.checks`."""

from __future__ import annotations

from typing import Any

import torch

from xlaprof.runtime.lowering.registry import overloads
from xlaprof.runtime.trace.ops import Op

from .checks import CHECKS, Check, is_integral, no_kernel
from .meta_functions import SHAPES
from .rehearse import rehearse

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


_register(lambda *args, **_: any(map(_is_bool, args[:2])), "sub.Tensor", "sub.Scalar", "rsub.Tensor", "rsub.Scalar")


def _alpha(*args: Any, alpha: Any = 1, **_: Any) -> bool:
    if isinstance(alpha, bool):
        return not all(map(_is_bool, args[:2]))
    return isinstance(alpha, (float, complex)) and not args[0].dtype.is_floating_point


_register(_alpha, "add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar")

# -- integers have no negative powers -----------------------------------------------------------------


def _power(base: Any, exponent: Any) -> bool:
    return is_integral(base) and isinstance(exponent, int) and exponent < 0


def _power_shape(base: torch.Tensor, exponent: Any) -> torch.Tensor:
    if base.dtype is torch.bool and isinstance(exponent, bool):
        return torch.empty_like(base)
    return torch.ops.aten.pow.Tensor_Scalar(base, exponent)  # type: ignore[no-any-return]


_register(_power, "pow.Tensor_Scalar")
SHAPES.setdefault("aten.pow.Tensor_Scalar", _power_shape)

# -- nor quotients in addcdiv ---------------------------------------------------------------------------


_register(lambda base, one, other, **_: is_integral(one) and is_integral(other), "addcdiv.default")

# -- complex numbers have no order --------------------------------------------------------------------


def _is_complex(value: Any) -> bool:
    return value.dtype.is_complex if isinstance(value, torch.Tensor) else isinstance(value, complex)


def _unordered(kernel: str) -> Check:
    def check(*args: Any, **kwargs: Any) -> bool:
        for value in (*args, *kwargs.values()):
            if _is_complex(value):
                dtype = value.dtype if isinstance(value, torch.Tensor) else torch.complex64
                raise no_kernel(kernel, dtype)
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

#: positions of the arguments that must have one dtype -> operators
_OF_ONE_DTYPE = {
    (0, 1): "mm bmm mv dot vdot heaviside lerp.Scalar grid_sampler_2d _cdist_forward",
    (0, 1, 2): "addmm baddbmm addbmm addmv convolution lerp.Tensor",
    (0, 2): "index_put _index_put_impl _unsafe_index_put put",
    (0, 3): "index_add index_copy index_reduce scatter.src scatter_add scatter_reduce.two "
    "_unsafe_masked_index_put_accumulate",
}


def _of_one_dtype(packet: str, overload: str, places: tuple[int, ...]) -> Check:
    def check(*args: Any, **kwargs: Any) -> bool:
        given = [args[i] for i in places if i < len(args)]
        if len({value.dtype for value in given if isinstance(value, torch.Tensor)}) > 1:
            rehearse(Op(getattr(getattr(torch.ops.aten, packet), overload)), args, kwargs)
        return False  # the CPU accepts the call

    return check


for _places, _names in _OF_ONE_DTYPE.items():
    for _name in overloads(_names):
        _, _packet, _overload = _name.split(".")
        _register(_of_one_dtype(_packet, _overload, _places), f"{_packet}.{_overload}")


def loses_imaginary_part(args: tuple[Any, ...]) -> bool:
    """Would an operation that writes to its first argument put complex numbers into a real tensor?"""
    target = args[0] if args else None
    if not isinstance(target, torch.Tensor) or target.dtype.is_complex:
        return False
    return any(map(_is_complex, args[1:]))
