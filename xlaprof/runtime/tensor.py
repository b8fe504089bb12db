"""The tensor on ``xla``: a wrapper that PyTorch's dispatcher hands to the tape, below autograd."""

from __future__ import annotations

from typing import Any, cast

import torch

from .cells import Cell, View
from .trie import Out

make = torch.Tensor._make_wrapper_subclass  # type: ignore[attr-defined]

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
    __torch_dispatch__ = staticmethod(_dispatch)
    # Below autograd only: no override of torch functions.
    __torch_function__ = torch._C._disabled_torch_function_impl

    def __repr__(self, *, tensor_contents: Any = None) -> str:
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

    def __coerce_same_metadata_as_tangent__(self, metadata: Any, expected_type: Any = None) -> XLATensor:
        return self


def dress(out: Out, cell: Cell) -> XLATensor:
    """A tensor that is a handle on ``cell``, with the metadata of ``out``."""
    result = make(
        XLATensor, out.size, out.strides, out.offset, None, out.dtype, torch.strided, cell.tape.torch_device
    )
    result._cell = cell
    return cast(XLATensor, result)


def handle(cell: Cell, like: torch.Tensor | None = None) -> XLATensor:
    """A new tensor on ``cell``; with the strides of ``like``, another handle on the same cell."""
    strides = offset = None
    if like is not None and isinstance(cell, View):
        strides, offset = like.stride(), like.storage_offset()
    result = make(
        XLATensor, cell.sig.shape, strides, offset, None, cell.sig.dtype, torch.strided, cell.tape.torch_device
    )
    result._cell = cell
    return cast(XLATensor, result)


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
