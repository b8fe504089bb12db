"""The tensor on ``xla``: a wrapper that PyTorch's dispatcher hands to the tape, below autograd."""

from __future__ import annotations

from collections import OrderedDict
from copy import deepcopy
from typing import Any, cast

import torch

from .cells import Cell, View
from .trie import Out

make = torch.Tensor._make_wrapper_subclass

#: id of an overload -> its handler; overloads live as long as the process
HANDLERS: dict[int, Any] = {}


def _dispatch(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    handler = HANDLERS.get(id(func))
    if handler is None:
        from .handlers import prepare

        handler = prepare(func)
    return handler(args, kwargs or {})


class XLATensor(torch.Tensor):
    """A tensor on ``torch.device("xla")``: a handle on a :class:`~xlaprof.runtime.cells.Cell`."""

    __slots__ = ("_cell",)

    _cell: Cell

    # Staticmethods, not the usual classmethods: one Python object less per operation.
    __torch_dispatch__ = staticmethod(_dispatch)  # type: ignore[assignment]
    # Below autograd only: no override of torch functions.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return _repr(self)

    @property
    def data(self) -> torch.Tensor:
        """The tensor without its history: another handle on the same storage."""
        return self.detach()

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        if not isinstance(value, XLATensor):
            raise TypeError(
                f"incompatible tensor type: cannot set the data of a tensor on {self.device} to one on {value.device}; "
                f"move it there first: tensor.to({str(self.device)!r})"
            )
        torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
        self._cell = value._cell

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers: one read."""
        return self.detach().cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """As for any device: only ``force=True`` copies to the host by itself. Raises ``TypeError`` otherwise."""
        if not force:
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )
        return self.detach().cpu().numpy()

    def __array__(self, dtype: Any = None) -> Any:
        return self.numpy() if dtype is None else self.numpy().astype(dtype, copy=False)

    def __format__(self, spec: str) -> str:
        # f"{loss:.3f}" reads the value; PyTorch does so for its own class only.
        if self.dim() == 0:
            return self.item().__format__(spec)
        return object.__format__(self, spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> XLATensor:
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol. "
                "Detach this one first: copy.deepcopy(tensor.detach())"
            )
        if id(self) in memo:
            return cast(XLATensor, memo[id(self)])
        with torch.no_grad():
            copy = self.clone()
        copy.__dict__.update(deepcopy(self.__dict__, memo))
        copy.requires_grad_(self.requires_grad)
        if self.grad is not None:
            copy.grad = self.grad.__deepcopy__(memo)
        memo[id(self)] = copy
        return cast(XLATensor, copy)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Saved as its copy on the host and the device it goes back to (or where map_location says).
        arguments = (self.detach().cpu(), self.dtype, str(self.device), self.requires_grad)
        if getattr(self, "_is_param", False):
            return torch._utils._rebuild_parameter, (self.detach(), self.requires_grad, OrderedDict())
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, arguments

    def __coerce_same_metadata_as_tangent__(self, metadata: Any, expected_type: Any = None) -> XLATensor:
        return self


def dress(out: Out, cell: Cell) -> XLATensor:
    """A tensor that is a handle on ``cell``, with the metadata of ``out``."""
    result = make(XLATensor, out.size, out.strides, out.offset, None, out.dtype, torch.strided, cell.tape.torch_device)
    result._cell = cell
    return result


def handle(cell: Cell, like: torch.Tensor | None = None) -> XLATensor:
    """A new tensor on ``cell``; with the strides of ``like``, another handle on the same cell."""
    strides = offset = None
    if like is not None and isinstance(cell, View):
        strides, offset = like.stride(), like.storage_offset()
    result = make(
        XLATensor, cell.sig.shape, strides, offset, None, cell.sig.dtype, torch.strided, cell.tape.torch_device
    )
    result._cell = cell
    return result


def _repr(tensor: XLATensor) -> str:
    # As PyTorch prints a tensor of any other device: the values of its copy on the host, and where it is.
    values = repr(tensor.detach().cpu())
    body, dtype = values.removesuffix(")"), ""
    cut = body.rfind(", dtype=")
    if cut > body.rfind("]"):  # PyTorch writes the dtype after the device
        body, dtype = body[:cut], body[cut:]
    suffix = f", device='{tensor.device}'{dtype}"
    if tensor.grad_fn is not None:
        suffix += f", grad_fn=<{type(tensor.grad_fn).__name__}>"
    elif tensor.requires_grad:
        suffix += ", requires_grad=True"
    text = f"{body}{suffix})"
    if isinstance(tensor, torch.nn.Parameter) or getattr(tensor, "_is_param", False):
        return f"Parameter containing:\n{text}"
    return text
