"""Shapes and dtypes as XLA names them, for :mod:`.xla_builder`."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np

from xlaprof.runtime.lowering.registry import JAX_DTYPE
from xlaprof.runtime.trace.storage import DTYPE_TEXT

#: XLA's names of dtypes: ``Type.F32 == "f32"``
Type = SimpleNamespace(**{name.upper(): name for name in DTYPE_TEXT.values()})
#: XLA's name -> PyTorch's dtype
TORCH = {name: dtype for dtype, name in DTYPE_TEXT.items()}
#: a dtype of NumPy's -> XLA's name
NAME = {np.dtype(JAX_DTYPE[dtype]): name for dtype, name in DTYPE_TEXT.items()}


class Shape:
    """Dtype and sizes of a value, or a list of shapes."""

    def __init__(self, shape: Any) -> None:
        #: a dictionary ``{"type": "f32", "sizes": (2, 3)}``, or a list of them
        self.shape = shape

    @classmethod
    def create(cls, dtype: str, sizes: Sequence[int], dynamic_dimensions: Sequence[bool] | None = None) -> Shape:
        """The shape of an array."""
        dynamic = {} if dynamic_dimensions is None else {"dynamic_dimensions": tuple(dynamic_dimensions)}
        return Shape({"type": str(dtype), "sizes": tuple(sizes), **dynamic})

    def is_tuple(self) -> bool:
        """Is this the shape of several values?"""
        return isinstance(self.shape, (list, tuple))

    def tuple_size(self) -> int:
        """The number of values."""
        return len(self.shape)

    def tuple_shape(self, index: int) -> Any:
        """The shape of one of the values."""
        return self.shape[index]

    def is_dynamic(self) -> bool:
        """Are there dimensions whose size depends on values?"""
        return "dynamic_dimensions" in self.shape

    def as_scalar(self) -> Shape:
        """The shape of one element."""
        return Shape.create(self.dtype, ())

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the dimensions."""
        sizes: tuple[int, ...] = self.shape["sizes"]
        return sizes

    @property
    def dynamic_dimensions(self) -> tuple[bool, ...] | None:
        """Which dimensions have a size that depends on values."""
        dynamic: tuple[bool, ...] | None = self.shape.get("dynamic_dimensions")
        return dynamic

    @property
    def dtype(self) -> str:
        """XLA's name of the dtype."""
        name: str = self.shape["type"]
        return name


def shape_of(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [shape_of(item) for item in value]
    return {"type": NAME[np.dtype(value.dtype)], "sizes": tuple(value.shape)}


def dtype_of(name: str | None) -> Any:
    return JAX_DTYPE[TORCH[name]] if name else jnp.float32


def mkshape(dtype: str, sizes: Sequence[int], dynamic_dimensions: Sequence[bool] | None = None) -> Shape:
    """:meth:`Shape.create`."""
    return Shape.create(dtype, sizes, dynamic_dimensions)


def tensor_shape(tensor: Any, device: str = "") -> Any:
    """The shape of a tensor, or of each in a list."""
    if isinstance(tensor, (list, tuple)):
        return [tensor_shape(t) for t in tensor]
    return Shape.create(DTYPE_TEXT[tensor.dtype], tensor.shape)
