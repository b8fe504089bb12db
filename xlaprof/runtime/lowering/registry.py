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

``ctx.out`` holds one :class:`Aval` per output, as PyTorch's meta kernels (or the tape) computed them. Outputs are cast
to those dtypes and checked against those shapes by the caller, so a lowering may return a wider dtype. Lowerings run
under 64-bit jax and use its public API only.

Arguments whose value shapes the computation itself (the ``p`` of a norm, the ends of an ``arange``) are named in
``lower(..., static=("p",))``: the tape keeps those Python numbers, and they become part of the graph's identity.

An output that PyTorch leaves undefined (a gradient masked out) is ``None`` in what the lowering returns, and in
``ctx.out``. ``Tensor[]`` results are returned as a tuple; their ``Aval`` s lie flat in ``ctx.out``.

In-place and ``out=`` variants need no entry: dispatch calls the functional overload and writes the result.
View operators have their lowerings in ``runtime/tape/views.py``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import torch

Array = jax.Array
MaybeArray = Array | None
Ints = Sequence[int]

_DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
JAX_DTYPE: dict[torch.dtype, Any] = {getattr(torch, name): getattr(jnp, name) for name in _DTYPES}
JAX_DTYPE[torch.bool] = jnp.bool_


class Aval(NamedTuple):
    """Shape and dtype of one output."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def jax(self) -> Any:
        return JAX_DTYPE[self.dtype]


class Ctx(NamedTuple):
    """The expected outputs, and the key of random numbers, of the operation being lowered."""

    out: tuple[Aval, ...]
    #: threefry key (``jax.random.key``) of this operation, for those registered with ``random=True``
    key: Any = None
    #: ids of the argument arrays that are Python numbers in disguise ("wrapped numbers")
    weak: frozenset[int] = frozenset()
    #: a write of what comes from another place of the same tensor (:mod:`xlaprof.runtime.trace.self_writes`)
    writes_itself: bool = False

    def is_weak(self, value: Any) -> bool:
        """Does ``value`` count as a Python number in type promotion?"""
        return not isinstance(value, jax.Array) or id(value) in self.weak


Lowering = Callable[..., Any]
F = TypeVar("F", bound=Lowering)

#: "aten.add.Tensor" -> its lowering
LOWERINGS: dict[str, Lowering] = {}
#: those that draw random numbers and need ``ctx.key``
RANDOM: set[str] = set()
#: "aten.linalg_vector_norm.default" -> its ``Scalar`` arguments that are never packed
STATIC: dict[str, frozenset[str]] = {}


def lower(*names: str, random: bool = False, static: Sequence[str] = ()) -> Callable[[F], F]:
    """Register the decorated function as the lowering of the overloads ``names``.

    ``random`` asks for ``ctx.key``; ``static`` names the ``Scalar`` arguments that must stay Python numbers.
    """

    def register(fn: F) -> F:
        for name in names:
            if name in LOWERINGS:
                raise ValueError(f"{name} has two lowerings: {LOWERINGS[name]} and {getattr(fn, '__qualname__', fn)}")
            LOWERINGS[name] = fn
            if random:
                RANDOM.add(name)
            if static:
                STATIC[name] = frozenset(static)
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
    dims: list[Any] = []
    zeros: list[Any] = []
    numbers: list[Any] = []
    for a in args:
        if a is None:
            continue
        if ctx.is_weak(a):
            numbers.append(_number_dtype(a))
        else:
            (dims if a.ndim else zeros).append(jnp.dtype(a.dtype))
    return _outrank(_common(dims), _outrank(_common(zeros), _common(numbers)))


def _common(dtypes: list[Any]) -> Any:
    return functools.reduce(torch_promote, dtypes) if dtypes else None


def _outrank(higher: Any, lower: Any) -> Any:
    """The dtype of ``higher`` promoted by a dtype of lower rank, which can change its category only."""
    if higher is None or lower is None:
        return lower if higher is None else higher
    if _category(lower) <= _category(higher):
        return higher
    if _category(lower) == _COMPLEX and _category(higher) == _FLOATING:
        if higher == jnp.float16:
            raise Unsupported("complex numbers of half precision")
        return jnp.dtype(jnp.complex128 if higher == jnp.float64 else jnp.complex64)
    return torch_promote(higher, lower)


_FLOATING, _COMPLEX = 2, 3


def _category(dtype: Any) -> int:
    """bool 0, integer 1, floating 2, complex 3."""
    for category, kind in ((_COMPLEX, jnp.complexfloating), (_FLOATING, jnp.floating), (1, jnp.integer)):
        if jnp.issubdtype(dtype, kind):
            return category
    return 0


def default_dtype() -> Any:
    """``torch.get_default_dtype()`` as a jax dtype."""
    return jnp.dtype(JAX_DTYPE[torch.get_default_dtype()])


def _number_dtype(value: Any) -> Any:
    category = _category(value.dtype if isinstance(value, jax.Array) else jnp.asarray(value).dtype)
    if category == _COMPLEX:
        return jnp.dtype(jnp.complex128 if default_dtype() == jnp.float64 else jnp.complex64)
    return (jnp.dtype(jnp.bool_), jnp.dtype(jnp.int64), default_dtype())[category]


#: ``jnp.finfo`` and ``jnp.iinfo``, which jax leaves untyped
finfo: Any = jnp.finfo
iinfo: Any = jnp.iinfo

#: :data:`JAX_DTYPE`, the other way round
TORCH_DTYPE = {jnp.dtype(j): t for t, j in JAX_DTYPE.items()}


def torch_promote(a: Any, b: Any) -> Any:
    """``torch.promote_types`` over jax dtypes."""
    return jnp.dtype(JAX_DTYPE[torch.promote_types(TORCH_DTYPE[jnp.dtype(a)], TORCH_DTYPE[jnp.dtype(b)])])


def promote(ctx: Ctx, *args: Any) -> tuple[Any, ...]:
    """``args`` brought to their common dtype, as PyTorch's pointwise operators do."""
    dtype = result_dtype(ctx, *args)
    return tuple(None if a is None else jnp.asarray(a).astype(dtype) for a in args)


def is_floating(x: Any) -> bool:
    return _category(x.dtype) == _FLOATING


def is_complex(x: Any) -> bool:
    return _category(x.dtype) == _COMPLEX


def is_integral(x: Any) -> bool:
    """Integers or booleans?"""
    return _category(x.dtype) <= 1


def opmath_dtype(dtype: Any) -> Any:
    """The dtype PyTorch computes in: ``float32`` for the half precisions, otherwise ``dtype``."""
    dtype = jnp.dtype(dtype)
    return jnp.dtype(jnp.float32) if _category(dtype) == _FLOATING and dtype.itemsize < 4 else dtype


def opmath(ctx: Ctx, *args: Any, exact: bool = False) -> tuple[Any, ...]:
    """Like :func:`promote`, with half precisions widened to the ``float32`` they are computed in.

    With ``exact``, a Python number that comes last keeps all the digits it has there, as in PyTorch's products and
    quotients; any other has no more than the common dtype.
    """
    dtype = result_dtype(ctx, *args)
    return _cast(args, dtype, opmath_dtype(dtype), ctx, exact)


def rounded(x: Any, dtype: Any) -> Any:
    """``x`` with no more digits than ``dtype`` holds, in its own dtype: a rounding that XLA may not optimise away."""
    dtype = jnp.dtype(dtype)
    if dtype == x.dtype or _category(dtype) != _FLOATING:
        return x
    return jax.lax.reduce_precision(x, finfo(dtype).nexp, finfo(dtype).nmant)


def float_opmath(ctx: Ctx, *args: Any, exact: bool = False) -> tuple[Any, ...]:
    """Like :func:`opmath`, for functions that turn integers into the default floating dtype."""
    dtype = result_dtype(ctx, *args)
    dtype = dtype if _category(dtype) >= _FLOATING else default_dtype()
    return _cast(args, dtype, opmath_dtype(dtype), ctx, exact)


def _cast(args: Sequence[Any], dtype: Any, wide: Any, ctx: Ctx, exact: bool) -> tuple[Any, ...]:
    def one(a: Any) -> Any:
        if not ctx.is_weak(a):
            return a.astype(dtype).astype(wide)
        number = jnp.asarray(a)
        if dtype != wide and not (exact and a is args[-1]):
            number = rounded(number.astype(jnp.float64), dtype)
        return number.astype(wide)

    return tuple(None if a is None else one(a) for a in args)


def wide(x: Array) -> Array:
    """``x`` in the dtype its sums are kept in: ``float32`` for the half precisions, otherwise its own."""
    return x.astype(opmath_dtype(x.dtype))


def pointwise_table(functions: dict[str, Lowering], tensors: int = 1, to: Callable[..., Any] = opmath) -> None:
    """Register functions of arrays: ``{"name other.Overload": function}``, of ``aten``, ``default`` unless named.

    Their first ``tensors`` arguments are promoted to one dtype by ``to`` (:func:`opmath`, :func:`float_opmath` or
    :func:`promote`), the numbers after them are cast to that dtype; flags and strings stay as they are.
    """

    def promoting(fn: Lowering) -> Lowering:
        signature = inspect.signature(fn)

        @functools.wraps(fn)
        def lowering(ctx: Ctx, *args: Any, **kwargs: Any) -> Any:
            call = signature.bind(*args, **kwargs)
            call.apply_defaults()
            arrays = to(ctx, *call.args[:tensors])
            rest = (a if isinstance(a, (bool, str)) else scalar(a, arrays[0].dtype) for a in call.args[tensors:])
            return fn(*arrays, *rest)

        return lowering

    for names, fn in functions.items():
        lower(*overloads(names))(promoting(fn))


def direct_table(functions: dict[str, Lowering]) -> None:
    """Register functions of the operators' arguments alone, which take no :class:`Ctx`: names as above."""

    def without_ctx(fn: Lowering) -> Lowering:
        return functools.wraps(fn)(lambda ctx, *args, **kwargs: fn(*args, **kwargs))

    for names, fn in functions.items():
        lower(*overloads(names))(without_ctx(fn))


def overloads(names: str) -> Iterator[str]:
    """``aten.add.Tensor``, ``aten.relu.default`` for ``"add.Tensor relu"``."""
    return (f"aten.{name}" if "." in name else f"aten.{name}.default" for name in names.split())


def normalize_dims(dims: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Dimensions counted from the front; ``None`` and ``()`` mean all of them."""
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(ndim))
    given = (dims,) if isinstance(dims, int) else dims
    return tuple(d % ndim if ndim else 0 for d in given)
