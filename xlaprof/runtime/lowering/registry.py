"""The table: ATen operator -> function over ``jax`` arrays.

A lowering has the operator's own signature (PyTorch's schema), after one argument of ours::

    @lower("aten.add.Tensor", "aten.add.Scalar")
    def add(ctx: Ctx, self, other, *, alpha=1):
        ...

What arrives for each argument of the schema:

* ``Tensor``: a ``jax.Array`` of the same shape and dtype (:data:`JAX_DTYPE`);
* ``Tensor[]``, ``Tensor?[]``: a tuple of them (``None`` where the list has none);
* ``Scalar`` (and a Python number given for a tensor): a Python number where it is part of the graph's
  identity, otherwise a 0-dim ``float64`` or ``int64`` array read from the program's packed scalars. Never
  branch on its value; :func:`scalar` brings it to a dtype. :attr:`Ctx.weak` tells such values from tensors;
* ``int[]``: a tuple; ``ScalarType``: a ``torch.dtype``; ``layout``, ``device``, ``pin_memory``: left out.

``ctx.out`` says what the operator must return, as PyTorch's own meta kernels (or the tape) worked it out: one
:class:`Aval` per output. Outputs are cast to those dtypes and checked against those shapes by the caller,
so a lowering may return a wider dtype. Lowerings run under 64-bit jax and use its public API only.

In-place and ``out=`` variants need no entry: the tape calls the functional overload and writes the result.
View operators are not here (``runtime/views.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import torch

JAX_DTYPE: dict[torch.dtype, Any] = {
    torch.float32: jnp.float32,
    torch.float64: jnp.float64,
    torch.float16: jnp.float16,
    torch.bfloat16: jnp.bfloat16,
    torch.int8: jnp.int8,
    torch.int16: jnp.int16,
    torch.int32: jnp.int32,
    torch.int64: jnp.int64,
    torch.uint8: jnp.uint8,
    torch.uint16: jnp.uint16,
    torch.uint32: jnp.uint32,
    torch.uint64: jnp.uint64,
    torch.bool: jnp.bool_,
    torch.complex64: jnp.complex64,
    torch.complex128: jnp.complex128,
    torch.float8_e4m3fn: jnp.float8_e4m3fn,
    torch.float8_e5m2: jnp.float8_e5m2,
}


class Aval(NamedTuple):
    """Shape and dtype of one output."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def jax(self) -> Any:
        return JAX_DTYPE[self.dtype]


class Ctx(NamedTuple):
    """What a lowering may ask besides its arguments."""

    out: tuple[Aval, ...]
    #: threefry key (``jax.random.key``) of this operation, for those registered with ``random=True``
    key: Any = None
    #: ids of the argument arrays that are Python numbers in disguise ("wrapped numbers")
    weak: frozenset[int] = frozenset()

    def is_weak(self, value: Any) -> bool:
        """Does ``value`` count as a Python number in type promotion?"""
        return not isinstance(value, jax.Array) or id(value) in self.weak


Lowering = Callable[..., Any]
F = TypeVar("F", bound=Lowering)

#: "aten.add.Tensor" -> its lowering
LOWERINGS: dict[str, Lowering] = {}
#: those that draw random numbers and need ``ctx.key``
RANDOM: set[str] = set()


def lower(*names: str, random: bool = False) -> Callable[[F], F]:
    """Register the decorated function as the lowering of the overloads ``names``."""

    def register(fn: F) -> F:
        for name in names:
            if name in LOWERINGS:
                raise ValueError(f"{name} has two lowerings: {LOWERINGS[name].__qualname__} and {fn.__qualname__}")
            LOWERINGS[name] = fn
            if random:
                RANDOM.add(name)
        return fn

    return register


class Unsupported(Exception):
    """Raised by a lowering that does not cover these arguments: the operation falls back to the CPU."""


def scalar(value: Any, dtype: Any) -> jax.Array:
    """A ``Scalar`` argument, constant or packed, as a 0-dim array of the jax ``dtype``."""
    return jnp.asarray(value).astype(dtype)


def result_dtype(ctx: Ctx, *args: Any) -> Any:
    """PyTorch's type promotion of tensors and numbers (``torch.result_type``), as a jax dtype.

    Tensors with dimensions outrank 0-dim tensors, which outrank numbers, within and across the categories
    bool < integer < floating < complex.
    See https://pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc.
    """
    ranks: list[list[Any]] = [[], [], []]
    for a in args:
        if a is None:
            continue
        if ctx.is_weak(a):
            ranks[2].append(_number_dtype(a))
        else:
            ranks[0 if a.ndim else 1].append(jnp.dtype(a.dtype))
    result: Any = None
    for dtypes in ranks:
        for d in dtypes:
            if result is None or (_category(d) > _category(result)):
                result = d if dtypes is not ranks[2] or result is None else _widen(d, result)
            elif d in dtypes and result in dtypes:
                result = torch_promote(result, d)
    return result


_CATEGORY = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3, "V": 2}


def _category(dtype: Any) -> int:
    return _CATEGORY[jnp.dtype(dtype).kind]


def _number_dtype(value: Any) -> Any:
    kind = jnp.asarray(value).dtype.kind
    default = JAX_DTYPE[torch.get_default_dtype()]
    if kind == "c":
        return jnp.dtype(jnp.complex128 if default == jnp.float64 else jnp.complex64)
    return jnp.dtype({"b": jnp.bool_, "i": jnp.int64, "u": jnp.int64}.get(kind, default))


def _widen(number: Any, tensor: Any) -> Any:
    """dtype of a tensor of dtype ``tensor`` met by a number of a higher category."""
    if _category(number) == 3 and jnp.dtype(tensor) == jnp.float64:
        return jnp.dtype(jnp.complex128)
    return number


_TORCH_DTYPE = {jnp.dtype(j): t for t, j in JAX_DTYPE.items()}


def torch_promote(a: Any, b: Any) -> Any:
    """``torch.promote_types`` over jax dtypes."""
    return jnp.dtype(JAX_DTYPE[torch.promote_types(_TORCH_DTYPE[jnp.dtype(a)], _TORCH_DTYPE[jnp.dtype(b)])])


def promote(ctx: Ctx, *args: Any) -> tuple[Any, ...]:
    """``args`` brought to their common dtype, as PyTorch's pointwise operators do."""
    dtype = result_dtype(ctx, *args)
    return tuple(None if a is None else jnp.asarray(a).astype(dtype) for a in args)


def normalize_dims(dims: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Dimensions counted from the front; ``None`` and ``()`` mean all of them."""
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(ndim))
    given = (dims,) if isinstance(dims, int) else dims
    return tuple(d % ndim if ndim else 0 for d in given)
