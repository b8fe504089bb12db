"""Live memory of a device: bytes, by shape, dtype and the line that made them.

A tensor holds memory once its value was computed or uploaded. Buffers that the next barrier reads count too, even if
their tensor is gone or was overwritten: they stay on the device until then. Several tensors on one storage count once.
"""

from __future__ import annotations

import gc
import math
from typing import Any

import jax
import msgspec
import torch

from xlaprof.runtime.tape import tapes
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.storage import Storage, base_of
from xlaprof.runtime.trace.tensor import XLATensor
from xlaprof.text.quantities import size_text

from .failures import memory_limit


class Holder(msgspec.Struct, frozen=True):
    """Buffers of one shape and dtype, made on one line of the user's."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    place: str  # "train.py:31"; empty where nobody's line made them
    count: int
    bytes: int


class MemoryInfo(msgspec.Struct, frozen=True):
    """The result of :func:`memory_info`. ``print`` it for a table."""

    device: str
    bytes_in_use: int  # by live tensors, and by inputs of pending operations
    buffers: int  # how many buffers these are
    pending_bytes: int  # of live tensors whose values are not computed yet
    other_bytes: int  # other arrays of jax's on the device: numbers handed to programs, and arrays made without torch
    peak_bytes: int | None  # the most ever allocated, temporary memory of programs included; None: not known
    limit_bytes: int | None  # memory of the device; None: not known
    holders: tuple[Holder, ...]  # the largest groups first

    def __str__(self) -> str:
        lines = [f"{self.device}: {size_text(self.bytes_in_use)} in {self.buffers} buffers"]
        lines[0] += f" of {size_text(self.limit_bytes)}" if self.limit_bytes else ""
        lines[0] += f", at most {size_text(self.peak_bytes)}" if self.peak_bytes is not None else ""
        lines += [f"  {size_text(self.pending_bytes)} recorded, not computed yet"] if self.pending_bytes else []
        lines += [f"  {size_text(self.other_bytes)} of no tensor"] if self.other_bytes else []
        for held in self.holders:
            dtype = str(held.dtype).removeprefix("torch.")
            lines.append(
                f"  {size_text(held.bytes):>10}  {held.count:5} x {dtype}{list(held.shape)}  {held.place or '?'}"
            )
        return "\n".join(lines)


def memory_info(device: torch.device | str | None = None, top: int = 10) -> MemoryInfo:
    """Live memory of ``device`` (by default the current one), with the ``top`` largest groups of buffers.

    It runs nothing and waits for nothing, but visits every object of the interpreter. Tensors hidden by ``gc.freeze()``
    count among ``other_bytes``.
    """
    tape = tapes.of_device(device)
    alive = storages(tape)
    held: dict[int, tuple[Any, Storage]] = {}  # id of an array -> itself, and a storage that shows it
    for storage, array in (*((c, c.array) for c in alive), *zip(tape.owners, tape.arrays, strict=False)):
        if isinstance(array, jax.Array) and not array.is_deleted():
            held.setdefault(id(array), (array, storage))
    pending = {c.slot: c for c in alive if c.epoch == tape.epoch and c.slot not in tape.input_at}
    others = (a for a in jax.live_arrays(tape.device.platform) if id(a) not in held and tape.device in a.devices())
    groups: dict[tuple[tuple[int, ...], torch.dtype, str], list[int]] = {}
    for array, storage in held.values():
        groups.setdefault((storage.sig.shape, storage.sig.dtype, _place(storage)), []).append(array.nbytes)
    holders = [Holder(*group, len(sizes), sum(sizes)) for group, sizes in groups.items()]
    holders.sort(key=lambda holder: -holder.bytes)
    return MemoryInfo(
        device=str(tape.torch_device),
        bytes_in_use=sum(holder.bytes for holder in holders),
        buffers=len(held),
        pending_bytes=sum(math.prod(c.sig.shape) * c.sig.dtype.itemsize for c in pending.values()),
        other_bytes=sum(math.prod(a.sharding.shard_shape(a.shape)) * a.dtype.itemsize for a in others),
        peak_bytes=(tape.device.memory_stats() or {}).get("peak_bytes_in_use"),
        limit_bytes=memory_limit(tape.device) or None,
        holders=tuple(holders[:top]),
    )


def storages(tape: Tape) -> list[Storage]:
    """The distinct storages of all tensors alive on ``tape``'s device."""
    found: dict[int, Storage] = {}
    for thing in gc.get_objects():
        if type(thing) is XLATensor:
            storage: Storage = thing._storage
            base = base_of(storage)
            if base.tape is tape:
                found[id(base)] = base
                if storage.array is not None:
                    found[id(storage)] = storage
    return list(found.values())


def _place(storage: Storage) -> str:
    return f"{storage.frames[0].file}:{storage.frames[0].line}" if storage.frames else ""
