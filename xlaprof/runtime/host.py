"""Between host and device: uploads, reads, and host tensors among an operation's arguments."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

import jax
import numpy as np
import torch

from xlaprof import events, recorder, stacks

from . import execute, inflight, metrics, tapes
from .cells import NOWHERE, Cell, sig
from .clock import aside, clock
from .lowering.registry import JAX_DTYPE
from .ops import Op
from .tape import Tape
from .tensor import XLATensor, handle

#: operators that take index tensors from the host (PyTorch allows it on every device)
_HOST_INDICES = {
    "aten.index.Tensor",
    "aten.index_put.default",
    "aten.index_put_.default",
    "aten._index_put_impl_.default",
    "aten._unsafe_index.Tensor",
}

_BITS = {torch.bfloat16: torch.int16, torch.float8_e4m3fn: torch.uint8, torch.float8_e5m2: torch.uint8}

#: the nearest dtype that the device has, where PyTorch converts to it
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
            return value._cell.tape
        if isinstance(value, (list, tuple)):
            for item in value:
                if type(item) is XLATensor:
                    return item._cell.tape
    return tapes.of_device(kwargs.get("device"))


def adopt(tape: Tape, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with host tensors brought to the device where PyTorch allows mixing: 0-dim ones, and indices.

    Raises PyTorch's error for any other.
    """
    if not any(_has_host(value) for value in (*args, *kwargs.values())):
        return args, kwargs
    free = op.name in _HOST_INDICES

    def move(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(move(v) for v in value) if type(value) in (list, tuple) else value
        if isinstance(value, torch.Tensor) and type(value) is not XLATensor:
            if value.device.type == "cpu" and (value.ndim == 0 or free):
                return to_device(tape, value)
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"xla:{tape.index} and {value.device}! (when checking arguments of {op.aten})"
            )
        return value

    return tuple(move(a) for a in args), {k: move(v) for k, v in kwargs.items()}


def _has_host(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return type(value) is not XLATensor
    return isinstance(value, (list, tuple)) and any(_has_host(v) for v in value)


def require_dtype(dtype: torch.dtype) -> None:
    """Raise ``RuntimeError``, with the way out, for a dtype that no value on the device has."""
    if dtype in JAX_DTYPE:
        return
    if str(dtype).startswith(("torch.qint", "torch.quint")):
        way_out = "call dequantize() first"
    elif dtype in _NEAREST:
        way_out = f"convert to {_NEAREST[dtype]} first"
    else:
        way_out = "move its bits, view(torch.uint8)"
    raise RuntimeError(f"a {dtype} tensor cannot live on xla: {way_out}")


def _require_dense(value: torch.Tensor) -> None:
    """Raise ``RuntimeError``, with the way out, for a host tensor whose layout no value on the device has."""
    if value.layout is not torch.strided:
        raise RuntimeError(f"a {value.layout} tensor cannot live on xla: call to_dense() first")


def to_device(tape: Tape, value: torch.Tensor) -> XLATensor:
    """A new tensor on ``tape``'s device with the host tensor's value."""
    cell = Cell(tape, sig(tuple(value.shape), value.dtype), 0, NOWHERE, 0)
    result = handle(cell)
    fill(tape, cell, value)
    return result


def fill(tape: Tape, cell: Cell, value: torch.Tensor) -> None:
    """Give a base ``cell`` the host tensor's value, which has its shape and dtype.

    A 0-dim value becomes a scalar of the graph, as PyTorch/XLA does: 0, 1 and -1 part of it, others inputs.
    Raises ``RuntimeError`` for a dtype or layout that the device does not have.
    """
    require_dtype(value.dtype)
    _require_dense(value)
    if value.ndim == 0 and value.dtype not in (torch.complex64, torch.complex128, torch.uint64):
        full = torch.ops.aten.full.default([], value.item(), dtype=value.dtype, device=tape.torch_device)
        tape.acquire()
        try:
            tape.write(cell, tape.slot_of(full._cell))
        finally:
            tape.release()
        return
    array = execute.upload(tape, to_numpy(value))
    tape.acquire()
    try:
        cell.array = array
        cell.epoch = NOWHERE
        tape.invalidate(cell)
    finally:
        tape.release()


def to_numpy(value: torch.Tensor) -> np.ndarray[Any, Any]:
    """The host tensor's values as numpy has them; its memory where that is possible."""
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


def read(cells: list[Cell], op: str, *, keep_pending: bool = False) -> list[torch.Tensor]:
    """The values of ``cells`` on the host, as tensors of their own: one TransferFromDevice.

    Unless ``keep_pending``, the cells are materialised: no longer pending, an input to what is recorded next. ``op``
    names the reading operator in the log.
    """
    start = perf_counter_ns()
    rec = recorder.active
    frames = stacks.user_frames() if rec is not None else ()
    with aside():
        tape = cells[0].tape
        arrays = execute.values(tape, cells, frames)
        asked = perf_counter_ns()
        try:
            jax.block_until_ready(arrays)
        except Exception as error:
            raise RuntimeError(f"reading a tensor ({op}): its computation failed on the device: {error}") from error
        waited = perf_counter_ns() - asked
        if not keep_pending:
            for cell, array in zip(cells, arrays, strict=True):
                execute.materialize(tape, cell, array)
        results = [to_torch(np.asarray(array), cell.sig.dtype) for cell, array in zip(cells, arrays, strict=True)]
    took = perf_counter_ns() - start
    metrics.sample("TransferFromDeviceTime", took)
    if rec is not None:
        inflight.poll()
        size = sum(r.numel() * r.element_size() for r in results)
        rec.emit(
            events.TransferFromDevice(
                start, took, waited, size, rec.text(op), rec.stack(frames), rec.thread(), len(results)
            )
        )
        clock.leave(frames, tape.node)
    return results
