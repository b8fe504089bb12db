"""``torch_xla.core.xla_builder``, customarily ``xb``: XLA's own operations, for :mod:`.xla_op_registry`.

An :class:`Op` is a value while a computation is described: here, an array that jax traces. The methods have the names
and arguments of XLA's operation semantics (https://openxla.org/xla/operation_semantics).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax

from xlaprof.runtime.functional.jax_functions import cache as _JAX_TO_XLA_COMPUTATION_CACHE
from xlaprof.runtime.functional.jax_functions import call_jax
from xlaprof.runtime.lowering.registry import JAX_DTYPE
from xlaprof.runtime.tape.computations import Computation

from ._shapes import TORCH, Shape, Type, dtype_of, mkshape, shape_of, tensor_shape

__all__ = [
    "Op", "Shape", "Type", "as_function", "call_jax", "create_builder", "create_computation", "mkshape", "tensor_shape",
]  # fmt: skip


def _jax_to_xla_computation_cache_elements() -> int:
    """How many traces :func:`call_jax` keeps."""
    return len(_JAX_TO_XLA_COMPUTATION_CACHE)


def _unwrap(value: Any) -> Any:
    """The value of an :class:`Op`, or of each Op in a list."""
    if isinstance(value, Op):
        return value.op
    return [_unwrap(item) for item in value] if isinstance(value, (list, tuple)) else value


def as_function(fn: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
    """``fn`` over Ops as a function over jax arrays."""

    def function(*arrays: Any) -> Any:
        return _unwrap(fn(*map(Op, arrays), **kwargs))

    return function


def _on_tuple(fn: Callable[..., Any]) -> Callable[[Any], Any]:
    """``fn`` as a function over one operand; a tuple is passed as its elements."""
    function = as_function(fn)

    def apply(operand: Any) -> Any:
        result = function(*operand) if isinstance(operand, (list, tuple)) else function(operand)
        return list(result) if isinstance(result, (list, tuple)) else result

    return apply


class Op:
    """A value of a computation, and XLA's operations on it."""

    def __init__(self, op: Any) -> None:
        self.op = op

    def shape(self) -> Shape:
        """Its dtype and sizes; of a tuple, those of its elements."""
        return Shape(shape_of(self.op))

    def builder(self) -> None:
        """The builder of the computation, an argument of some functions: always ``None`` here."""

    # -- arithmetic: operators, and functions of each element, are defined below -------------------------

    # -- shape -------------------------------------------------------------------------------------------

    def reshape(
        self, sizes: Sequence[int], dimensions: Sequence[int] | None = None, inferred_dimension: int | None = None
    ) -> Op:
        """Reshaped to ``sizes``, its dimensions taken in the order of ``dimensions``."""
        value = self.op if dimensions is None else lax.transpose(self.op, tuple(dimensions))
        return Op(jnp.reshape(value, tuple(sizes)))

    def broadcast(self, sizes: Sequence[int]) -> Op:
        """Broadcast: ``sizes`` become its leading dimensions."""
        return Op(lax.broadcast(self.op, tuple(sizes)))

    def broadcast_in_dim(self, sizes: Sequence[int], dimensions: Sequence[int]) -> Op:
        """Broadcast to ``sizes``, its own dimensions at ``dimensions``."""
        return Op(lax.broadcast_in_dim(self.op, tuple(sizes), tuple(dimensions)))

    def transpose(self, permutation: Sequence[int]) -> Op:
        """Its dimensions permuted."""
        return Op(lax.transpose(self.op, tuple(permutation)))

    def rev(self, dimensions: Sequence[int]) -> Op:
        """Reversed along ``dimensions``."""
        return Op(lax.rev(self.op, tuple(dimensions)))

    def slice(
        self, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
    ) -> Op:
        """The elements from ``start_indices`` to ``limit_indices``, every ``strides``-th."""
        return Op(lax.slice(self.op, tuple(start_indices), tuple(limit_indices), tuple(strides) if strides else None))

    def slice_in_dim(self, start_index: int, limit_index: int, dimno: int, stride: int = 1) -> Op:
        """:meth:`slice` along one dimension."""
        return Op(lax.slice_in_dim(self.op, start_index, limit_index, stride, dimno))

    def dynamic_slice(self, start_indices: Sequence[Op], slice_sizes: Sequence[int]) -> Op:
        """A slice of fixed sizes whose start is computed."""
        return Op(lax.dynamic_slice(self.op, _unwrap(list(start_indices)), tuple(slice_sizes)))

    def dynamic_update_slice(self, update: Op, start_indices: Sequence[Op]) -> Op:
        """This with ``update`` written at a computed start."""
        return Op(lax.dynamic_update_slice(self.op, update.op, _unwrap(list(start_indices))))

    def pad(self, value: Op, config: Sequence[Sequence[int]]) -> Op:
        """Padded with ``value``: ``(low, high, interior)`` for each dimension."""
        return Op(
            lax.pad(
                self.op, value.op, [(int(low), int(high), int(more[0]) if more else 0) for low, high, *more in config]
            )
        )

    def gather(
        self,
        start_indices: Op,
        offset_dims: Sequence[int],
        collapsed_slice_dims: Sequence[int],
        start_index_map: Sequence[int],
        index_vector_dim: int,
        indices_are_sorted: bool | None = None,
        slice_sizes: Sequence[int] | None = None,
    ) -> Op:
        """XLA's Gather. ``slice_sizes`` are by default 1 in collapsed dimensions, and whole in the others."""
        indices = (
            jnp.moveaxis(start_indices.op, index_vector_dim, -1)
            if start_indices.op.ndim > index_vector_dim
            else (start_indices.op[..., None])
        )
        numbers = lax.GatherDimensionNumbers(tuple(offset_dims), tuple(collapsed_slice_dims), tuple(start_index_map))
        sizes = slice_sizes or [1 if d in collapsed_slice_dims else n for d, n in enumerate(self.op.shape)]
        return Op(lax.gather(self.op, indices, numbers, tuple(sizes), indices_are_sorted=bool(indices_are_sorted)))

    # -- of other types ----------------------------------------------------------------------------------

    def cast(self, to_type: str) -> Op:
        """Its values converted to another dtype."""
        return Op(lax.convert_element_type(self.op, dtype_of(to_type)))

    def bitcast(self, to_type: str) -> Op:
        """Its bits reinterpreted as another dtype."""
        return Op(lax.bitcast_convert_type(self.op, dtype_of(to_type)))

    # -- reductions --------------------------------------------------------------------------------------

    def reduce(self, init_value: Op, computation: Callable[..., Op], dimensions: Sequence[int]) -> Op:
        """Reduced along ``dimensions`` by ``computation(a, b)``."""
        return Op(lax.reduce(self.op, init_value.op, as_function(computation), tuple(dimensions)))

    def reduce_all(self, init_value: Op, computation: Callable[..., Op]) -> Op:
        """Reduced to one element."""
        return self.reduce(init_value, computation, range(self.op.ndim))

    def reduce_window(
        self,
        init_value: Op,
        computation: Callable[..., Op],
        window_dimensions: Sequence[int],
        window_strides: Sequence[int],
        padding: str = "valid",
    ) -> Op:
        """Reduced over windows."""
        return Op(
            lax.reduce_window(
                self.op,
                init_value.op,
                as_function(computation),
                tuple(window_dimensions),
                tuple(window_strides),
                padding.upper(),
            )
        )

    def select(self, true_value: Op, false_value: Op) -> Op:
        """``true_value`` where this is true, else ``false_value``, element by element."""
        return Op(lax.select(jnp.broadcast_to(self.op, true_value.op.shape), true_value.op, false_value.op))

    def clamp(self, min_value: Op, max_value: Op) -> Op:
        """Clamped between two bounds."""
        return Op(lax.clamp(min_value.op, self.op, max_value.op))

    def triangualr_solve(  # so it is spelled there
        self,
        b: Op,
        left_side: bool | None = None,
        lower: bool | None = None,
        unit_diagonal: bool | None = None,
        transpose_a: bool | None = None,
    ) -> Op:
        """``x`` of ``self @ x = b``, or ``x @ self = b`` where ``left_side`` is false."""
        return Op(
            lax.linalg.triangular_solve(
                self.op,
                b.op,
                left_side=left_side is not False,
                lower=bool(lower),
                unit_diagonal=bool(unit_diagonal),
                transpose_a=bool(transpose_a),
            )
        )

    triangular_solve = triangualr_solve

    def conv_general_dilated(self, kernel: Op, window_strides: Any, padding: Any, **more: Any) -> Op:
        """A convolution in ``jax.lax.conv_general_dilated``'s terms (NCHW, OIHW)."""
        return Op(lax.conv_general_dilated(self.op, kernel.op, tuple(window_strides), padding, **more))

    def conv(
        self,
        kernel: Op,
        window_strides: Sequence[int],
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        padding: str = "valid",
        precision_config: Any = None,
    ) -> Op:
        """A convolution of NCHW and OIHW."""
        return self.conv_general_dilated(
            kernel,
            window_strides,
            padding.upper(),
            feature_group_count=feature_group_count,
            batch_group_count=batch_group_count,
        )

    # -- control flow ------------------------------------------------------------------------------------

    def conditional(
        self, true_operand: Op, false_operand: Op, true_computation: Callable[..., Any], false_computation: Any
    ) -> Op:
        """The result of one of two computations, each with its operand."""
        chosen = lax.cond(
            jnp.reshape(self.op, ()),
            lambda pair: _on_tuple(true_computation)(pair[0]),
            lambda pair: _on_tuple(false_computation)(pair[1]),
            (true_operand.op, false_operand.op),
        )
        return Op(chosen)

    def mkconditional(self, ops: Sequence[Op], true_fn: Any, false_fn: Any, **kwargs: Any) -> Op:
        """The result of one of two functions of ``ops``."""
        operand = Op.tuple(ops)
        return self.conditional(operand, operand, true_fn, false_fn)

    def while_loop(self, condition_computation: Callable[..., Any], body_computation: Callable[..., Any]) -> Op:
        """``body_computation`` applied again and again while the condition holds."""
        condition, body = _on_tuple(condition_computation), _on_tuple(body_computation)
        return Op(lax.while_loop(lambda s: jnp.reshape(condition(s), ()), lambda s: _like(body(s), s), self.op))

    @classmethod
    def mkwhile(cls, ops: Sequence[Op], condition_fn: Any, body_fn: Any, **kwargs: Any) -> Op:
        """A loop over several values."""
        return Op.tuple(ops).while_loop(condition_fn, body_fn)

    # -- tuples and leaves -------------------------------------------------------------------------------

    @classmethod
    def tuple(cls, ops: Sequence[Op], builder: Any = None) -> Op:
        """A tuple of values."""
        return Op([item.op for item in ops])

    def get_tuple_element(self, index: int) -> Op:
        """One element of a tuple."""
        return Op(self.op[index])

    @classmethod
    def concat_in_dim(cls, ops: Sequence[Op], dimension: int, builder: Any = None) -> Op:
        """Concatenated along ``dimension``."""
        return Op(lax.concatenate([item.op for item in ops], dimension))

    @classmethod
    def call(cls, computation: Callable[..., Any], ops: Sequence[Op], builder: Any = None) -> Op:
        """``computation(*ops)``."""
        return Op(as_function(computation)(*(item.op for item in ops)))

    @classmethod
    def map(
        cls,
        ops: Sequence[Op],
        computation: Any,
        dimensions: Sequence[int],
        static_operands: Any = (),
        builder: Any = None,
    ) -> Op:
        """``computation`` of each element."""
        function = as_function(computation)
        for _ in range(ops[0].op.ndim):
            function = jax.vmap(function)
        return Op(function(*(item.op for item in ops)))

    @classmethod
    def sort(cls, ops: Sequence[Op], comparator: Any = None, dimension: int = -1, is_stable: bool | None = None) -> Op:
        """Sorted by the first of ``ops``, ascending, the others rearranged with it. Comparators are not supported."""
        if comparator is not None:
            raise NotImplementedError("xla_builder.Op.sort is served in ascending order only: leave out the comparator")
        values = lax.sort([item.op for item in ops], dimension=dimension, is_stable=bool(is_stable), num_keys=1)
        return Op(list(values)) if len(values) > 1 else Op(values[0])

    @classmethod
    def constant(cls, builder: Any, value: Any) -> Op:
        """A tensor on the host as part of the computation."""
        array = value.detach().cpu() if isinstance(value, torch.Tensor) else torch.as_tensor(value)
        return Op(jnp.asarray(array.numpy(), JAX_DTYPE[array.dtype]))

    @classmethod
    def scalar(cls, builder: Any, value: Any, dtype: str | None = None) -> Op:
        """A number as part of the computation."""
        return Op(jnp.asarray(value, dtype_of(dtype)))

    @classmethod
    def zero(cls, builder: Any, dtype: str | None = None) -> Op:
        """0."""
        return cls.scalar(builder, 0, dtype)

    @classmethod
    def one(cls, builder: Any, dtype: str | None = None) -> Op:
        """1."""
        return cls.scalar(builder, 1, dtype)

    @classmethod
    def iota(cls, builder: Any, shape: Shape, iota_dimension: int) -> Op:
        """0, 1, 2... along one dimension."""
        return Op(lax.broadcasted_iota(dtype_of(shape.dtype), shape.sizes, iota_dimension))

    def scalar_like(self, value: Any) -> Op:
        """An Op of this shape and dtype filled with a number."""
        return Op(jnp.full(self.op.shape, value, self.op.dtype))

    def zeros_like(self) -> Op:
        """Zeros of this shape."""
        return self.scalar_like(0)

    def ones_like(self) -> Op:
        """Ones of this shape."""
        return self.scalar_like(1)

    def get_dimension_size(self, dimension: int) -> Op:
        """The size of one dimension."""
        return Op(jnp.asarray(self.op.shape[dimension], jnp.int32))

    @classmethod
    def to_torch_type(cls, dtype: str | None) -> torch.dtype:
        """PyTorch's dtype of XLA's name."""
        return TORCH[dtype] if dtype else torch.float32


def _like(new: Any, old: Any) -> Any:
    """``new`` in the dtypes of ``old``: a loop's values keep theirs."""
    return jax.tree.map(lambda n, o: n.astype(o.dtype), list(new) if isinstance(old, list) else new, old)


def _divide(lhs: Any, rhs: Any) -> Any:
    whole = jnp.issubdtype(lhs.dtype, jnp.integer)
    return lax.div(*jnp.broadcast_arrays(lhs, rhs)) if whole else lhs / rhs


def _remainder(lhs: Any, rhs: Any) -> Any:
    return lax.rem(*jnp.broadcast_arrays(lhs, rhs))


def _elementwise(name: str, function: Callable[..., Any]) -> None:
    def method(self: Op, *others: Op) -> Op:
        return Op(function(self.op, *(other.op for other in others)))

    method.__name__, method.__doc__ = name, f"``{name}``, element by element."
    setattr(Op, name, method)


_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "__add__": operator.add, "__sub__": operator.sub, "__mul__": operator.mul, "__matmul__": jnp.matmul,
    "__truediv__": _divide, "__mod__": _remainder, "__pow__": operator.pow, "__neg__": operator.neg,
    "__invert__": operator.invert, "__not__": operator.invert, "__and__": operator.and_, "__or__": operator.or_,
    "__xor__": operator.xor, "__eq__": operator.eq, "__ne__": operator.ne, "__le__": operator.le,
    "__lt__": operator.lt, "__ge__": operator.ge, "__gt__": operator.gt, "__lshift__": operator.lshift,
    "__rshift__": operator.rshift, "atan2": jnp.arctan2, "max": jnp.maximum, "min": jnp.minimum,
    "acos": jnp.arccos, "asin": jnp.arcsin, "atan": jnp.arctan, "ceil": jnp.ceil, "cos": jnp.cos, "cosh": jnp.cosh,
    "erf": lax.erf, "erfc": lax.erfc, "erfinf": lax.erf_inv, "exp": jnp.exp, "expm1": jnp.expm1, "floor": jnp.floor,
    "log": jnp.log, "log1p": jnp.log1p, "sqrt": jnp.sqrt, "real": jnp.real, "imag": jnp.imag, "clz": lax.clz,
    "conj": jnp.conj, "rsqrt": lax.rsqrt, "sin": jnp.sin, "sinh": jnp.sinh, "tan": jnp.tan, "tanh": jnp.tanh,
}  # fmt: skip
for _name, _function in _ELEMENTWISE.items():
    _elementwise(_name, _function)


def create_computation(name: str, fn: Callable[..., Any], shapes: Sequence[Shape], **kwargs: Any) -> Computation:
    """``fn(*ops, **kwargs)``, for ``torch_xla._XLAC._xla_user_computation``; ``shapes`` are taken from the tensors."""
    return Computation(f"xla::{name}", as_function(fn, **kwargs))


def create_builder(name: str) -> None:
    """A builder, an argument of some functions: always ``None`` here."""
