"""Operators with a handler of their own: copies, reads, handles, and what changes storage itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import handlers, host, metrics, tapes
from .cells import NOWHERE, Cell, View, sig
from .ops import Op
from .tensor import HANDLERS, XLATensor, handle

Handler = Callable[[tuple[Any, ...], dict[str, Any]], Any]
SPECIAL: dict[str, Handler] = {}

aten = torch.ops.aten


def special(*names: str) -> Callable[[Handler], Handler]:
    """Register the handler of the overloads ``names``."""

    def register(handler: Handler) -> Handler:
        for name in names:
            SPECIAL[name] = handler
        return handler

    return register


# -- handles ------------------------------------------------------------------------------------------


@special("aten.detach.default", "aten.alias.default", "aten.lift_fresh.default", "aten.lift.default")
def alias(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Another handle on the same storage."""
    return handle(args[0]._cell, args[0])


@special("aten.as_strided.default")
def as_strided(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Strides are over the storage: the view is taken of the base, whatever view it was asked of."""
    tensor, size, stride, *rest = args
    offset = rest[0] if rest else kwargs.get("storage_offset")
    cell = tensor._cell
    if isinstance(cell, View):
        offset = tensor.storage_offset() if offset is None else offset
        tensor = handle(cell.base)
    return _as_strided((tensor, tuple(size), tuple(stride), offset), {})


_as_strided = handlers.view(Op(aten.as_strided.default))

# -- reads --------------------------------------------------------------------------------------------


@special("aten._local_scalar_dense.default")
def local_scalar(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``.item()``, ``bool()``, ``float()``: one value is computed and read; the tensor stays pending."""
    metrics.count("aten::_local_scalar_dense")
    (value,) = host.read([args[0]._cell], "aten::_local_scalar_dense", keep_pending=True)
    return value.item()


@special("aten.equal.default")
def equal(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """``torch.equal``: computed on the device, one scalar read."""
    a, b = args
    if a.shape != b.shape:
        return False
    return bool((a == b).all().item())


# -- copies -------------------------------------------------------------------------------------------

_cast = handlers.general(Op(aten._to_copy.default))


@special("aten._to_copy.default")
def to_copy(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``.to(device, dtype)``, ``.cpu()``: a read, a cast on the device, or a move between devices."""
    (tensor,) = args
    dtype = kwargs.get("dtype") or tensor.dtype
    device = kwargs.get("device")
    device = torch.device(device) if device is not None else tensor.device
    if device.type == "cpu":
        (copy,) = host.read([tensor._cell], "aten::_to_copy")
        return copy.to(dtype)
    if device.type != "xla":
        return to_copy((tensor,), {"device": torch.device("cpu")}).to(device=device, dtype=dtype)
    tape = tapes.of_device(device)
    if tape is not tensor._cell.tape:
        return host.to_device(tape, to_copy((tensor,), {"device": torch.device("cpu")})).to(dtype)
    return _cast(args, {"dtype": dtype})


_copy_same_device = handlers.inplace(Op(aten.copy_.default))


@special("aten.copy_.default")
def copy_(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``dst.copy_(src)`` over any two devices."""
    target, source = args[0], args[1]
    if type(target) is not XLATensor:
        (value,) = host.read([source._cell], "aten::copy_")
        return target.copy_(value)
    cell = target._cell
    tape = cell.tape
    if type(source) is not XLATensor:
        if not isinstance(source, torch.Tensor):
            return aten.fill_.Scalar(target, source)
        if source.device.type != "cpu":
            source = source.cpu()
        if isinstance(cell, View) or source.shape != cell.sig.shape or source.dtype != cell.sig.dtype:
            # the value travels as it is: casts and broadcasts are the device's work
            source = host.to_device(tape, source)
        else:
            host.fill(tape, cell, source)
            return target
    elif source._cell.tape is not tape:
        source = host.to_device(tape, to_copy((source,), {"device": torch.device("cpu")}))
    if source._cell is cell:
        return target
    if source._cell.sig is cell.sig and not isinstance(cell, View):
        # The same value in another storage: no operation, as in PyTorch/XLA.
        tape.acquire()
        try:
            tape.write(cell, tape.slot_of(source._cell))
        finally:
            tape.release()
        return target
    return _copy_same_device((target, source), {})


# -- storage ------------------------------------------------------------------------------------------


def _new_storage(tensor: XLATensor, cell: Cell) -> XLATensor:
    """Make ``tensor`` a handle on ``cell``, of whatever shape."""
    fresh = handle(cell)
    torch.Tensor.data.__set__(tensor, fresh)  # type: ignore[attr-defined]
    tensor._cell = cell
    return tensor


@special("aten.resize_.default")
def resize_(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``resize_``: what fits of the old elements is kept, in order; the rest is fresh memory."""
    tensor, size = args[0], tuple(args[1])
    if tuple(tensor.shape) == size:
        return tensor
    numel = 1
    for n in size:
        numel *= n
    flat = aten.view.default(aten.clone.default(tensor), [-1])
    if numel > flat.shape[0]:
        flat = aten.cat.default(
            [flat, aten.zeros.default([numel - flat.shape[0]], dtype=tensor.dtype, device=tensor.device)]
        )
    kept = aten.clone.default(aten.view.default(aten.slice.Tensor(flat, 0, 0, numel), list(size)))
    return _new_storage(tensor, kept._cell)


@special("aten.set_.source_Tensor")
def set_(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``a.set_(b)``: from now on a handle on the other's storage."""
    tensor, source = args
    tensor._cell = source._cell
    return tensor


# -- normalization with running statistics ------------------------------------------------------------


@special("aten.native_batch_norm.default", "aten._native_batch_norm_legit.default", "aten.cudnn_batch_norm.default")
def batch_norm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Batch norm in training: the functional form, and the running statistics written."""
    x, weight, bias, mean, var, training, momentum, eps = args
    if mean is None or var is None:
        return aten._native_batch_norm_legit.no_stats(x, weight, bias, training, momentum, eps)
    y, saved_mean, saved_rstd, new_mean, new_var = aten._native_batch_norm_legit_functional.default(
        x, weight, bias, mean, var, training, momentum, eps
    )
    if training:
        mean.copy_(new_mean)
        var.copy_(new_var)
    return y, saved_mean, saved_rstd


# -- factories: kernels of the dispatch key XLA -------------------------------------------------------


def empty(
    size: Any,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = None,
) -> XLATensor:
    """``torch.empty(device="xla")``: storage with no value yet; nothing is recorded."""
    dtype = dtype or torch.get_default_dtype()
    host.require_dtype(dtype)
    return handle(Cell(tapes.of_device(device), sig(tuple(size), dtype), 0, NOWHERE, 0))


def empty_strided(
    size: Any,
    stride: Any,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> XLATensor:
    """``torch.empty_strided(device="xla")``; storage is contiguous here, whatever strides are asked for."""
    return empty(size, dtype, layout, device)


@special("aten.empty.memory_format")
def empty_handler(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return empty(*args, **{k: v for k, v in kwargs.items() if k in ("dtype", "device")})


@special("aten.empty_like.default", "aten.new_empty.default", "aten.new_empty_strided.default")
def empty_like(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor = args[0]
    size = args[1] if len(args) > 1 else tensor.shape
    device = kwargs.get("device")
    if device is not None and torch.device(device).type != "xla":
        return torch.empty(size, dtype=kwargs.get("dtype") or tensor.dtype, device=device)
    return empty(size, kwargs.get("dtype") or tensor.dtype, None, device or tensor.device)


#: creation operators recorded as one operation; others (windows...) are made of these by PyTorch
FACTORIES = (
    "zeros.default",
    "ones.default",
    "full.default",
    "eye.default",
    "eye.m",
    "arange.default",
    "arange.start",
    "arange.start_step",
    "linspace.default",
    "logspace.default",
    "scalar_tensor.default",
    "rand.default",
    "rand.generator",
    "randn.default",
    "randn.generator",
    "randint.default",
    "randint.generator",
    "randint.low",
    "randint.low_generator",
    "randperm.default",
    "randperm.generator",
    "tril_indices.default",
    "triu_indices.default",
)


def copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """What ``copy_`` becomes where PyTorch has switched Python's dispatch off (``torch.tensor(..., device="xla")``)."""
    return copy_((target, source), {})  # type: ignore[no-any-return]


_library: torch.library.Library | None = None
_autocast: torch.library.Library | None = None


def install() -> None:
    """Register the factories on dispatch key XLA: they have no tensor that would bring them here."""
    global _library, _autocast
    if _library is not None:
        return
    _library = torch.library.Library("aten", "IMPL")
    _library.impl("empty.memory_format", empty, "XLA")
    _library.impl("empty_strided", empty_strided, "XLA")
    _library.impl("_copy_from", copy_from, "XLA")
    _autocast = torch.library.Library("_", "IMPL")
    _autocast.fallback(torch.library.fallthrough_kernel, "AutocastXLA")
    for name in FACTORIES:
        packet, overload = name.split(".")
        func = getattr(getattr(aten, packet), overload)
        _library.impl(func, _factory(func), "XLA")


def _factory(func: torch._ops.OpOverload) -> Callable[..., Any]:
    def create(*args: Any, **kwargs: Any) -> Any:
        handler = HANDLERS.get(id(func)) or handlers.prepare(func)
        # PyTorch fills in a default dtype of None; the graph's identity is the dtype itself
        given = {k: v for k, v in kwargs.items() if v is not None or k == "device"}
        return handler(args, given)

    return create
