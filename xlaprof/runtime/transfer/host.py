"""Between host and device: uploads, reads, and host tensors among an operation's arguments."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any, Protocol

import jax
import numpy as np
import torch
from jax.profiler import TraceAnnotation

from xlaprof import events
from xlaprof.recording import recorder, stacks
from xlaprof.runtime import metrics, parity
from xlaprof.runtime.clock import aside, clock
from xlaprof.runtime.execution import failures, inflight, reads, value_checks
from xlaprof.runtime.execution.upload import upload
from xlaprof.runtime.instruments import read_attribution
from xlaprof.runtime.lowering.registry import JAX_DTYPE
from xlaprof.runtime.tape import mode, tapes
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace import source
from xlaprof.runtime.trace.errors import Foreign, final
from xlaprof.runtime.trace.ops import Op
from xlaprof.runtime.trace.storage import NOWHERE, Constant, Storage, sig
from xlaprof.runtime.trace.tensor import XLATensor, handle


class BatchSharding(Protocol):
    """How the batches of a loader are laid out over devices: ``ShardingSpec`` of :mod:`xlaprof.runtime.spmd`."""

    minibatch: bool | None  # does each process load its own part of the batch?

    @property
    def op_sharding(self) -> Any: ...

    def can_apply(self, t: torch.Tensor, /) -> bool:
        """Has ``t`` the rank of this sharding?"""


#: operators that take index tensors from the host (PyTorch allows it on every device)
_HOST_INDICES = {
    "aten.index.Tensor",
    "aten.index_put.default",
    "aten.index_put_.default",
    "aten._index_put_impl_.default",
    "aten._unsafe_index.Tensor",
}

_ARITHMETIC = "add sub rsub mul div floor_divide fmod pow bitwise_and bitwise_or bitwise_xor __lshift__ __rshift__"
#: operators between two tensors of which one may be on the host, as in PyTorch/XLA (its ``DoBinaryOp``)
_MIXING = frozenset(f"aten::{name}" for name in _ARITHMETIC.split())

_BITS = {torch.bfloat16: torch.int16, torch.float8_e4m3fn: torch.uint8, torch.float8_e5m2: torch.uint8}

#: unsupported dtype -> the nearest supported one that PyTorch converts to
_NEAREST = {
    torch.complex32: torch.complex64,
    torch.float8_e4m3fnuz: torch.float32,
    torch.float8_e5m2fnuz: torch.float32,
    torch.float8_e8m0fnu: torch.float32,
}


def tape_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tape:
    """The tape a call is recorded on: that of its first ``xla`` tensor, or of its ``device``."""
    for value in (*args, *kwargs.values()):
        if type(value) is XLATensor:
            return value._storage.tape  # type: ignore[no-any-return]
        if isinstance(value, (list, tuple)):
            for item in value:
                if type(item) is XLATensor:
                    return item._storage.tape  # type: ignore[no-any-return]
    return tapes.of_device(kwargs.get("device"))


def mixes(op: Op) -> bool:
    """Does ``op``, or what it does in place, take host tensors of any shape?"""
    return op.writes in ((), (0,)) and (op.aten if op.twin is None else op.twin._schema.name) in _MIXING


def adopt(tape: Tape, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, with host tensors uploaded where PyTorch or PyTorch/XLA allows it: 0-dim ones, indices, operands.

    Raises PyTorch's error for any other host tensor.
    """
    if not any(_has_host(value) for value in (*args, *kwargs.values())):
        return args, kwargs
    free = op.name in _HOST_INDICES
    mixed = mixes(op)

    def move(value: Any, name: str) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(move(v, name) for v in value) if type(value) in (list, tuple) else value
        if isinstance(value, torch.Tensor) and type(value) is not XLATensor:
            yield_to(value)
            if value.device.type != "cpu" or not (value.ndim == 0 or mixed or (free and name in ("indices", "values"))):
                raise misplaced(op, name, tape.torch_device, value.device)
            return to_device(tape, value)
        return value

    if free:
        if type(args[0]) is not XLATensor:
            raise misplaced(op, "indices", args[0].device, tape.torch_device)
        _require_in_range(args[0].shape, args[1])
    moved = tuple(move(a, name) for a, name in zip(args, op.names, strict=False))
    return moved, {k: move(v, k) for k, v in kwargs.items()}


def _require_in_range(shape: torch.Size, indices: Any) -> None:
    """Raise PyTorch's ``IndexError`` for indices on the host that are out of range."""
    for dim, index in enumerate(indices):
        if isinstance(index, torch.Tensor) and index.device.type == "cpu" and index.dtype in (torch.int64, torch.int32):
            for value in (index.min().item(), index.max().item()) if index.numel() else ():
                if not -shape[dim] <= value < shape[dim]:
                    raise IndexError(f"index {value} is out of bounds for dimension {dim} with size {shape[dim]}")


def yield_to(value: torch.Tensor) -> None:
    """Raise :class:`~xlaprof.runtime.trace.errors.Foreign` for a tensor with a dispatch function of its own."""
    if type(value).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
        raise Foreign


def refuse_nested() -> RuntimeError:
    """The error for a nested tensor of strided layout."""
    return final(
        RuntimeError(
            "a nested tensor of layout torch.strided cannot live on xla: make it with layout=torch.jagged, "
            "or call to_padded_tensor(0.0) first"
        )
    )


def misplaced(op: Op, argument: str, expected: torch.device, found: torch.device) -> RuntimeError:
    """PyTorch's error for a tensor on another device than the others."""
    if argument == "indices" and op.name in _HOST_INDICES:
        return final(
            RuntimeError(f"indices should be either on cpu or on the same device as the indexed tensor ({expected})")
        )
    return final(
        RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {expected} and {found}! "
            f"(when checking argument for argument {argument} in method {op.aten})"
        )
    )


def _has_host(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return type(value) is not XLATensor
    return isinstance(value, (list, tuple)) and any(_has_host(v) for v in value)


def require_dtype(dtype: torch.dtype) -> None:
    """Raise ``RuntimeError``, with advice, for a dtype that the device does not support."""
    if dtype in JAX_DTYPE:
        return
    if str(dtype).startswith(("torch.qint", "torch.quint")):
        advice = "call dequantize() first"
    elif dtype in _NEAREST:
        advice = f"convert to {_NEAREST[dtype]} first"
    else:
        advice = "move its bits, view(torch.uint8)"
    raise final(RuntimeError(f"a {dtype} tensor cannot live on xla: {advice}"))


def require_form(dtype: torch.dtype, layout: torch.layout) -> None:
    """Raise ``RuntimeError``, with advice, for a dtype or layout that the device does not support."""
    require_dtype(dtype)
    if layout is not torch.strided:
        raise final(
            RuntimeError(
                f"a {layout} tensor cannot live on xla: call to_dense() first, "
                "or where it is the gradient of an Embedding, leave out sparse=True (sparse=False)"
            )
        )


def to_device(tape: Tape, value: torch.Tensor) -> XLATensor:
    """A new tensor on ``tape``'s device with the host tensor's value."""
    if value.is_nested:
        raise refuse_nested()
    storage = Storage(tape, sig(tuple(value.shape), value.dtype), 0, NOWHERE, 0)
    result = handle(storage)
    fill(tape, storage, value)
    return result


def fill(tape: Tape, storage: Storage, value: torch.Tensor) -> None:
    """Give a base ``storage`` the value of a host tensor of its shape and dtype.

    A 0-dim value becomes a scalar of the graph, as in PyTorch/XLA: 0, 1 and -1 are constants of it, others are inputs.
    Raises ``RuntimeError`` for a dtype or layout that the device does not support.
    """
    require_form(value.dtype, value.layout)
    if value.ndim == 0 and value.dtype not in (torch.complex64, torch.complex128, torch.uint64):
        start = perf_counter_ns()
        full = torch.ops.aten.full.default([], value.item(), dtype=value.dtype, device=tape.torch_device)
        with tape.lock:
            tape.write(storage, tape.slot_of(full._storage))
            if type(storage) is Constant and storage.array is None and storage.made[0] != tape.epoch:
                storage.made = (tape.epoch, storage.slot)
        metrics.sample("TensorToData", perf_counter_ns() - start)
        return
    # with several devices it stays on the host until its sharding is known
    array = upload(tape, to_numpy(value)) if tape.partition is None else to_numpy(value).copy()
    metrics.count("CreateXlaTensor")
    metrics.count("xla::_copy_from")
    with tape.lock:
        if mode.dry is not None:
            mode.dry.keep(storage)
        storage.array = array
        storage.epoch = NOWHERE
        storage.frames = storage.frames or stacks.user_frames(1)
        tape.invalidate(storage)


def send(tape: Tape, values: list[torch.Tensor], sharding: BatchSharding | None = None) -> list[XLATensor]:
    """New tensors on ``tape``'s device with the values of host tensors, 0-dim ones too: one TransferToDevice.

    With several devices, tensors of ``sharding``'s rank are laid out by it. Safe on any thread: nothing is recorded.
    """
    start = perf_counter_ns()
    for value in values:
        require_form(value.dtype, value.layout)
    # a copy: a worker of the user's loader may write to its own memory again
    own = [to_numpy(value).copy() for value in values]
    shardings = [sharding.op_sharding if sharding and sharding.can_apply(value) else None for value in values]
    if tape.partition is not None:
        put = tape.partition.put_part if sharding is not None and sharding.minibatch else tape.partition.put
        arrays = [put(host, how) for host, how in zip(own, shardings, strict=True)]
    elif any(shardings):
        raise RuntimeError("Please enable SPMD via `torch_xla.runtime.use_spmd()`")
    else:
        with jax.enable_x64(True), TraceAnnotation("PjRtComputationClient::TransferToDevice"):
            arrays = jax.device_put(own, tape.device)
    took = perf_counter_ns() - start
    size = sum(value.numel() * value.element_size() for value in values)
    metrics.samples(("TransferToDeviceTime", took), ("TensorToData", took), ("OutboundData", size))
    metrics.count("CreateDataHandles", len(values))
    metrics.count("CreateXlaTensor", len(values))
    rec = recorder.active
    if rec is not None:
        place = rec.stack(stacks.user_frames())
        rec.emit(events.TransferToDevice(start, took, size, len(values), place, rec.thread()))
    sent = []
    for value, array, how in zip(values, arrays, shardings, strict=True):
        part = sharding is not None and sharding.minibatch and not array.is_fully_addressable
        shape = array.shape if part else tuple(value.shape)
        result = handle(Storage(tape, sig(shape, value.dtype), 0, NOWHERE, 0, array, sharding=how))
        if value.requires_grad:
            result.requires_grad_()
        sent.append(result)
    return sent


def compute(storages: list[Storage], *, wait: bool) -> None:
    """Compute the values of ``storages``: one execution for each device. Other pending operations stay pending."""
    by_tape: dict[int, list[Storage]] = {}
    for storage in storages:
        by_tape.setdefault(storage.tape.index, []).append(storage)
    for group in by_tape.values():
        tape = group[0].tape
        arrays = reads.values(tape, group, stacks.user_frames() if recorder.active is not None else (), "sync")
        for storage, array in zip(group, arrays, strict=True):
            reads.materialize(tape, storage, array)
        reads.settle(tape)
        if wait:
            with aside():
                jax.block_until_ready(arrays)


def to_numpy(value: torch.Tensor) -> np.ndarray[Any, Any]:
    """The host tensor as a numpy array, sharing its memory if possible."""
    value = value.detach().resolve_conj().resolve_neg().contiguous()
    bits = _BITS.get(value.dtype)
    if bits is None:
        return value.numpy()
    return value.view(bits).numpy().view(JAX_DTYPE[value.dtype])


def to_torch(array: np.ndarray[Any, Any], dtype: torch.dtype) -> torch.Tensor:
    """A host tensor of its own memory with ``array``'s values."""
    own = np.array(array, order="C", copy=True)
    bits = _BITS.get(dtype)
    if bits is None:
        return torch.from_numpy(own)
    return torch.from_numpy(own.view(np.int16 if bits is torch.int16 else np.uint8)).view(dtype)


def read(storages: list[Storage], op: str, *, keep_pending: bool = False) -> list[torch.Tensor]:
    """The values of ``storages`` on the host, as tensors of their own: one TransferFromDevice.

    Unless ``keep_pending``, the storages are materialised: they become inputs to later operations. ``op`` is the name
    of the read in the log.
    """
    start = perf_counter_ns()
    rec = recorder.active
    frames = source.acting() if rec is not None else ()
    late = False
    with aside():
        tape = storages[0].tape
        arrays = reads.values(tape, storages, frames, op=op)
        if rec is not None:
            late = inflight.leaves_work(tape, arrays)
        wait_start = perf_counter_ns()
        try:
            jax.block_until_ready(arrays)
        except Exception as error:
            raise failures.unreadable(storages, arrays, error) from error
        inflight.were_read(arrays)
        if value_checks.enabled:
            failures.raise_unchecked(storages, arrays)
        waited = perf_counter_ns() - wait_start
        if keep_pending:
            tape.was_read = not (parity.strict or tape.eager)
        else:
            for storage, array in zip(storages, arrays, strict=True):
                reads.materialize(tape, storage, array)
            reads.settle(tape)
        if tape.node.depth > tape.shed_at:
            reads.shed(tape, frames)
        if tape.partition is not None:
            arrays = tape.partition.gathered(storages, arrays)
        with TraceAnnotation("PjRtComputationClient::TransferFromDevice"):
            results = [
                to_torch(np.asarray(array), storage.sig.dtype) for storage, array in zip(storages, arrays, strict=True)
            ]
    took = perf_counter_ns() - start
    size = sum(r.numel() * r.element_size() for r in results)
    metrics.samples(("TransferFromDeviceTime", took), ("InboundData", size))
    if rec is not None:
        inflight.poll()
        rec.emit(
            events.TransferFromDevice(
                start,
                took,
                waited,
                size,
                rec.text(op),
                rec.stack(frames),
                rec.thread(),
                len(results),
                rec.text(read_attribution.caller(frames, op)),
                late,
            )
        )
        clock.leave(frames, tape.node)
    return results
