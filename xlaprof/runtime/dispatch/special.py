"""Operators with a handler of their own: handles, reads, copies, factories, and losses with labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from xlaprof.runtime import metrics
from xlaprof.runtime.instruments import debug
from xlaprof.runtime.tape import mode, tapes
from xlaprof.runtime.tape.rewind import rewind
from xlaprof.runtime.trace.errors import raise_explained
from xlaprof.runtime.trace.ops import Op
from xlaprof.runtime.trace.storage import NOWHERE, Constant, Copy, View, sig
from xlaprof.runtime.trace.tensor import HANDLERS, XLATensor, dress, handle
from xlaprof.runtime.transfer import host

from . import handlers
from .handlers import special
from .routes import prepare
from .types import Args, Kwargs

aten = torch.ops.aten


# -- handles ------------------------------------------------------------------------------------------


@special("aten.detach.default", "aten.alias.default", "aten.lift_fresh.default", "aten.lift.default")
def alias(args: Args, kwargs: Kwargs) -> Any:
    """Return another handle on the same storage."""
    return handle(args[0]._storage, args[0])


# -- reads --------------------------------------------------------------------------------------------


@special("aten._local_scalar_dense.default", "prims.item.default")
def local_scalar(args: Args, kwargs: Kwargs) -> Any:
    """``.item()``, ``bool()``, ``float()``: one value is computed and read; the tensor stays pending."""
    metrics.count("aten::_local_scalar_dense")
    if debug.level:
        debug.fell_back("aten::_local_scalar_dense")
    (value,) = host.read([args[0]._storage], "aten::_local_scalar_dense", keep_pending=True)
    return value.item()


@special("aten.equal.default")
def equal(args: Args, kwargs: Kwargs) -> bool:
    """``torch.equal``: computed on the device, one scalar read."""
    a, b = args
    return a.shape == b.shape and bool((a == b).all().item())


# -- copies -------------------------------------------------------------------------------------------

_RANKS = {torch.channels_last: 4, torch.channels_last_3d: 5}


def _refuse_format(rank: int, memory_format: torch.memory_format | None) -> None:
    """Raise what PyTorch raises of a memory format that is for tensors of another rank; none changes storage here."""
    needed = _RANKS.get(memory_format, rank) if memory_format is not None else rank
    if needed != rank:
        name = str(memory_format).removeprefix("torch.")
        raise RuntimeError(f"required rank {needed} tensor to use {name} format")


_clone = Op(aten.clone.default)
_cast = handlers.general(Op(aten._to_copy.default))


@special("aten.clone.default")
def clone(args: Args, kwargs: Kwargs) -> Any:
    """The same value in another storage: graphs have no operation for it, as in PyTorch/XLA."""
    source = args[0]._storage
    tape = source.tape
    with tape.lock:
        if tape.was_read:
            rewind(tape)
        node = handlers.step(tape, _clone, args, kwargs)
        slot, epoch, out = tape.slot_of(source), tape.epoch, node.outs[0]
        storage = Copy(tape, out.sig, slot, epoch, epoch, of=(epoch, slot), own=node.slot)
        tape.storages.append(storage)
        return dress(out, storage)


@special("aten._to_copy.default")
def to_copy(args: Args, kwargs: Kwargs) -> Any:
    """``.to(device, dtype)``, ``.cpu()``: a read, a cast on the device, or a move between devices."""
    (tensor,) = args
    _refuse_format(tensor.ndim, kwargs.get("memory_format"))
    dtype = kwargs.get("dtype") or tensor.dtype
    device = kwargs.get("device")
    device = torch.device(device) if device is not None else tensor.device
    if device.type == "cpu":
        (copy,) = host.read([tensor._storage], "aten::_to_copy")
        return copy.to(dtype)
    if device.type != "xla":
        return to_copy((tensor,), {"device": torch.device("cpu")}).to(device=device, dtype=dtype)
    tape = tapes.of_device(device)
    if tape is not tensor._storage.tape:
        moved = host.to_device(tape, to_copy((tensor,), {"device": torch.device("cpu")}))
        return moved if moved.dtype == dtype else _cast((moved,), {"dtype": dtype})
    if dtype == tensor.dtype and mode.run_recorded is None:
        return clone(args, {})
    return _cast(args, {"dtype": dtype})


_copy_same_device = handlers.inplace(Op(aten.copy_.default))


@special("aten.copy_.default")
def copy_(args: Args, kwargs: Kwargs) -> Any:
    """``dst.copy_(src)`` over any two devices."""
    target, source = args[0], args[1]
    if type(target) is not XLATensor:
        (value,) = host.read([source._storage], "aten::copy_")
        return target.copy_(value)
    storage = target._storage
    tape = storage.tape
    if type(source) is not XLATensor:
        if not isinstance(source, torch.Tensor):
            if isinstance(source, complex) and not target.is_complex():
                source = torch.tensor(source).to(target.dtype).item()  # fill_ refuses what copy_ casts, and warns of
            return aten.fill_.Scalar(target, source)
        if source.device.type != "cpu":
            source = source.cpu()
        if isinstance(storage, View) or source.shape != storage.sig.shape or source.dtype != storage.sig.dtype:
            # the value travels as it is: casts and broadcasts are the device's work
            source = host.to_device(tape, source)
        else:
            host.fill(tape, storage, source)
            return target
    elif source._storage.tape is not tape:
        source = host.to_device(tape, to_copy((source,), {"device": torch.device("cpu")}))
    other = source._storage
    if other is storage:
        return target
    if other.sig is storage.sig and not isinstance(storage, View) and not isinstance(other, View):
        # The same value in another storage: no operation, as in PyTorch/XLA.
        with tape.lock:
            tape.write(storage, tape.slot_of(other))
        return target
    return _copy_same_device((target, source), {})


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
    _refuse_format(len(size), memory_format)
    if min(size, default=0) < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(size)}: {list(size)}")
    return handle(Constant(tapes.of_device(device), sig(tuple(size), dtype), 0, NOWHERE, 0))


def empty_strided(size: Any, stride: Any, *args: Any, **kwargs: Any) -> XLATensor:
    """``torch.empty_strided(device="xla")``; storage is contiguous, whatever the strides."""
    _refuse_strides(size, stride)
    return empty(size, *args, **kwargs)


def _refuse_strides(size: Any, stride: Any) -> None:
    """Raise what the CPU raises of strides that lead out of any storage; the meta kernel takes all."""
    if len(size) != len(stride):
        raise RuntimeError(
            f"dimensionality of sizes ({len(size)}) must match dimensionality of strides ({len(stride)})"
        )
    spans = [(n - 1) * step for n, step in zip(size, stride, strict=True)]
    if min(size, default=0) > 0 and (min(spans) < 0 or sum(spans) >= 1 << 60):
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(size)} and strides={list(stride)}")


@special("aten.empty.memory_format")
def empty_handler(args: Args, kwargs: Kwargs) -> Any:
    return empty(*args, **{k: v for k, v in kwargs.items() if k in ("dtype", "device", "memory_format")})


@special("aten.empty_like.default", "aten.new_empty.default", "aten.new_empty_strided.default")
def empty_like(args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    size = args[1] if len(args) > 1 else tensor.shape
    _refuse_format(len(size), kwargs.get("memory_format"))
    device = kwargs.get("device")
    if len(args) > 2:
        _refuse_strides(size, args[2])
    if device is not None and torch.device(device).type != "xla":
        make = torch.empty_strided if len(args) > 2 else torch.empty
        return make(size, *args[2:], dtype=kwargs.get("dtype") or tensor.dtype, device=device)
    return empty(size, kwargs.get("dtype") or tensor.dtype, None, device or tensor.device)


#: creation operators recorded as one operation; PyTorch composes others (windows...) of these
FACTORIES = (
    "zeros.default", "ones.default", "full.default", "eye.default", "eye.m", "arange.default", "arange.start",
    "arange.start_step", "linspace.default", "logspace.default", "scalar_tensor.default", "rand.default",
    "rand.generator", "randn.default", "randn.generator", "randint.default", "randint.generator", "randint.low",
    "randint.low_generator", "randperm.default", "randperm.generator", "tril_indices.default", "triu_indices.default",
    "_efficientzerotensor.default",  # a zero tangent
)  # fmt: skip


def copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """``copy_`` where PyTorch has switched Python's dispatch off (``torch.tensor(..., device="xla")``)."""
    copy_((target, source), {})
    if mode.run_recorded is not None:
        mode.run_recorded()
    return target


_library = torch.library.Library("aten", "IMPL")


def install() -> None:
    """Register the factories on dispatch key XLA: they have no tensor whose ``__torch_dispatch__`` could be called."""
    _library.impl("empty.memory_format", empty, "XLA")
    _library.impl("empty_strided", empty_strided, "XLA")
    _library.impl("_copy_from", copy_from, "XLA")
    # torch.tensor([a, b]) of tensors reads them where Python's dispatch is switched off
    _library.impl("_local_scalar_dense", lambda tensor: local_scalar((tensor,), {}), "XLA")
    for name in FACTORIES:
        packet, overload = name.split(".")
        func = getattr(getattr(aten, packet), overload)
        _library.impl(func, _factory(func), "XLA")


#: factories that PyTorch computes as two operations, empty memory and a fill, and so does eager mode
_FILLED = {
    aten.rand.default: aten.uniform_.default,
    aten.rand.generator: aten.uniform_.default,
    aten.randn.default: aten.normal_.default,
    aten.randn.generator: aten.normal_.default,
}


def _made_and_filled(func: torch._ops.OpOverload, size: Any, generator: Any = None, **kwargs: Any) -> XLATensor:
    memory = empty(size, kwargs.get("dtype"), None, kwargs.get("device"))
    storage = memory._storage
    with storage.tape.lock:
        storage.tape.slot_of(storage)
    assert mode.run_recorded is not None
    mode.run_recorded()
    _FILLED[func](memory, generator=generator)
    return memory


def _factory(func: torch._ops.OpOverload) -> Callable[..., Any]:
    def create(*args: Any, **kwargs: Any) -> Any:
        if mode.run_recorded is not None and func in _FILLED:
            return _made_and_filled(func, *args, **kwargs)
        handler = HANDLERS.get(id(func)) or prepare(func)
        # PyTorch fills in a default dtype of None; the graph's identity is the dtype itself
        given = {k: v for k, v in kwargs.items() if v is not None or k in ("device", "generator")}
        try:
            made = handler(args, given)
            if mode.run_recorded is not None:
                mode.run_recorded()
            return made
        except Exception as error:
            raise_explained(error, func, args, given)

    return create


# -- labels -------------------------------------------------------------------------------------------


def _with_labels(name: str, at: int) -> None:
    """Let ``name`` accept labels (its argument ``at``) of a floating dtype, as XLA devices do."""
    record = handlers.general(Op(getattr(aten, name).default))

    @special(f"aten.{name}.default")
    def labelled(args: Args, kwargs: Kwargs) -> Any:
        if args[at].is_floating_point() and type(args[at]) is XLATensor:
            args = (*args[:at], args[at].long(), *args[at + 1 :])
        return record(args, kwargs)


for _dims in ("nll_loss", "nll_loss2d"):
    _with_labels(f"{_dims}_forward", 1)
    _with_labels(f"{_dims}_backward", 2)
