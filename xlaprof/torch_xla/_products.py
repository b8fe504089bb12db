"""XLA's products that ATen has no operator for: any dimensions contracted, narrow integers kept narrow."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch

from xlaprof.runtime.lowering.registry import JAX_DTYPE
from xlaprof.runtime.tape.computations import Computation

#: dimensions of both operands: ``(lhs, rhs)``, or ``()`` for none
Dimensions = Sequence[Sequence[int]]


@functools.lru_cache(maxsize=256)
def _product(numbers: Any, precision: str | None, dtype: torch.dtype | None) -> Computation:
    result_type = None if dtype is None else JAX_DTYPE[dtype]

    def product(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        return jax.lax.dot_general(lhs, rhs, numbers, precision=precision, preferred_element_type=result_type)

    return Computation("xla::dot_general", product)


def _positive(dimensions: Dimensions, *operands: torch.Tensor) -> tuple[tuple[int, ...], ...]:
    pairs = tuple(dimensions) or ((), ())
    return tuple(tuple(d % operand.dim() for d in dims) for dims, operand in zip(pairs, operands, strict=True))


def dot_general(
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    dim_numbers: tuple[Dimensions, Dimensions],
    precision_config: str | Sequence[str] | None = None,
    preferred_element_type: torch.dtype | None = None,
) -> torch.Tensor:
    """The product of ``lhs`` and ``rhs`` over ``dim_numbers``: the contracted dimensions, and those of the batch.

    The result has the batch's dimensions, then the other ones of ``lhs`` and of ``rhs``, in ``preferred_element_type``,
    by default the operands'. It has no gradient of its own.
    """
    contracted, batch = (_positive(dimensions, lhs, rhs) for dimensions in dim_numbers)
    precision = precision_config if isinstance(precision_config, str | None) else precision_config[0]
    return _product((contracted, batch), precision, preferred_element_type)(lhs, rhs)[0]


@functools.cache
def _to_int4() -> Computation:
    # Tensors have integers of 8 bits or more: 4 bits exist only inside this computation.
    return Computation("xla::cast_int4", lambda x: x.astype(jnp.int4).astype(x.dtype))


def cast_int4(weight: torch.Tensor, values: Sequence[int] = ()) -> torch.Tensor:
    """``weight`` with its values wrapped to 4 bits, -8 to 7; ``values``, the same on the host, is not needed."""
    return _to_int4()(weight)[0]
