"""Uploads: host arrays, and the numbers that graphs read.

The numbers of a program are sent together, packed, and not again if they are on the device already. Under strict parity
each distinct number is sent alone, as in PyTorch/XLA.
"""

from __future__ import annotations

from collections import OrderedDict
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.profiler import TraceAnnotation

from xlaprof import events
from xlaprof.recording import recorder, stacks
from xlaprof.recording.repeats import described
from xlaprof.runtime import metrics, parity
from xlaprof.runtime.clock import aside

if TYPE_CHECKING:
    from xlaprof.recording.stacks import RawFrame
    from xlaprof.runtime.tape.graph import Graph
    from xlaprof.runtime.tape.tape import Tape

    from .program import Program

#: limit of packs of numbers kept on the device, and of single numbers under strict parity
KEPT, KEPT_ALONE = 64, 1024

_kept: OrderedDict[tuple[Any, ...], Any] = OrderedDict()


def upload(
    tape: Tape,
    host: np.ndarray[Any, Any],
    *,
    count: bool = True,
    sharding: Any = None,
    frames: tuple[RawFrame, ...] = (),
) -> Any:
    """A copy of ``host`` on the tape's device; with several, laid out by ``sharding``.

    ``frames``: the user's, if they are known already.
    """
    start = perf_counter_ns()
    with aside(), jax.enable_x64(True), TraceAnnotation("PjRtComputationClient::TransferToDevice"):
        # jax may read the memory later, or use it as the buffer: it gets memory that nobody else writes to.
        own = host.copy()
        where = tape.partition
        array = jax.device_put(own, tape.device) if where is None else where.put(own, sharding)
    if count:
        took = perf_counter_ns() - start
        metrics.samples(("TransferToDeviceTime", took), ("TensorToData", took), ("OutboundData", host.nbytes))
        metrics.count("CreateDataHandles")
        rec = recorder.active
        if rec is not None:
            place = rec.stack(frames or stacks.user_frames())
            again = rec.repeats.again(place, host)
            what = rec.text(described(host.dtype, host.shape)) if again else 0
            rec.emit(events.TransferToDevice(start, took, host.nbytes, 1, place, rec.here.tid, again=again, what=what))
    return array


def scalars(tape: Tape, graph: Graph, program: Program, frames: tuple[RawFrame, ...] = ()) -> tuple[Any, Any, Any]:
    """The floats, integers and seeds that ``program`` reads, on the device. Unchanged ones are not sent again."""
    now = (
        tuple([tape.floats[p.index] for p in graph.floats]),
        tuple([tape.ints[p.index] for p in graph.ints]),
        tuple([tape.seeds[row] for row in graph.seeds]),
    )
    before, there = program.scalars, program.uploaded
    if there is not None and now == before:
        return there
    program.scalars, program.uploaded = (
        now,
        (
            there[0] if there is not None and now[0] == before[0] else numbers(tape, np.float64, now[0], frames),
            there[1] if there is not None and now[1] == before[1] else numbers(tape, np.int64, now[1], frames),
            there[2] if there is not None and now[2] == before[2] else _seeds(tape, now[2], frames),
        ),
    )
    return program.uploaded


def numbers(tape: Tape, dtype: Any, values: tuple[Any, ...], frames: tuple[RawFrame, ...] = ()) -> Any:
    """The floats or integers ``values``, as a program reads them."""
    if parity.strict:  # each an array of no dimensions
        return tuple([_find(tape, (tape.index, dtype, repr(v)), np.array(v, dtype), frames) for v in values])
    key = (tape.index, dtype, tuple(map(repr, values)) if 0 in values else values)  # 0.0 and -0.0 are equal
    return _find(tape, key, np.array(values, dtype), frames)


def _seeds(tape: Tape, values: tuple[tuple[int, int], ...], frames: tuple[RawFrame, ...]) -> Any:
    """u32[n,2]. PyTorch/XLA sends one seed a step and derives the others from it."""
    new = bool(values) and (tape.seeded != tape.epoch or not parity.strict)
    if values:
        tape.seeded = tape.epoch
    return upload(tape, np.array(values, np.uint32).reshape(len(values), 2), count=new, frames=frames)


def _find(tape: Tape, key: tuple[Any, ...], host: np.ndarray[Any, Any], frames: tuple[RawFrame, ...]) -> Any:
    array = _kept.get(key)
    if array is None:
        if host.size:
            metrics.count("DeviceDataCacheMiss")
        array = _kept[key] = upload(tape, host, count=bool(host.size), frames=frames)
        if len(_kept) > (KEPT_ALONE if parity.strict else KEPT):
            _kept.popitem(last=False)
    else:
        _kept.move_to_end(key)
    return array


def forget() -> None:
    """Forget the numbers on the device."""
    _kept.clear()


parity.on_change.append(forget)
