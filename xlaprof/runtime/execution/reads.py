"""Reads before a barrier: the part of the trace that a value needs runs, and everything recorded stays pending."""

from __future__ import annotations

from typing import Any

from xlaprof.recording.stacks import RawFrame
from xlaprof.runtime.tape import mode
from xlaprof.runtime.tape.graph import size
from xlaprof.runtime.tape.rewind import rewind
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.storage import NOWHERE, Storage, View

from . import failures, guard
from .barrier import barrier
from .plans import slots_of
from .run import made_at, run_trace


def values(
    tape: Tape, storages: list[Storage], frames: tuple[RawFrame, ...], trigger: str = "read", op: str = "a read"
) -> list[Any]:
    """The current values of ``storages``, by one execution. The trace stays pending, as in PyTorch/XLA.

    ``op`` names the reader.
    """
    if tape.abstract:
        raise failures.NoValue
    with tape.lock:
        if all(storage.epoch != tape.epoch and storage.array is not None for storage in storages):
            for storage in storages:
                failures.raise_if_failed(storage)
            return _read(tape, [storage.array for storage in storages])
        if mode.eager_values is not None:
            return mode.eager_values(tape, storages)
        slots = [tape.slot_of(storage) for storage in storages]
        guard.require_allowed(tape, storages, op)
        arrays, run = run_trace(tape, storages, trigger, frames, donate=False)
        for storage in storages:
            if not storage.frames:
                storage.frames = made_at(tape, run, storage.slot)
        return _read(tape, [arrays[slot] for slot in slots])


def _read(tape: Tape, arrays: list[Any]) -> list[Any]:
    return arrays if mode.dry is None else [mode.dry.read(tape, array) for array in arrays]


def materialize(tape: Tape, storage: Storage, array: Any) -> None:
    """Give ``storage`` the ``array`` that was read, so that it is no longer pending."""
    with tape.lock:
        if storage.epoch == tape.epoch and not isinstance(storage, View):
            storage.array = array
            storage.epoch = NOWHERE


def settle(tape: Tape) -> None:
    """After a read, let go of what was recorded and nothing alive needs.

    A program that reads and has no barriers (inference, mostly) would otherwise keep all it ever computed.
    """
    with tape.lock:
        if tape.node is tape.root:
            return
        live = tape.live()
        if live:
            rewind(tape, live)
        else:
            tape.begin()


def shed(tape: Tape, frames: tuple[RawFrame, ...]) -> None:
    """Cut the trace if most of it is dead, as in a program that reads value by value: after a read.

    What is alive is computed then, and is an input of what follows: graphs that nobody's program has. So the cut waits
    for the read after which least is alive, as that at the end of a pass: while the trace doubles, reads are compared,
    and the next that leaves no more than any of them is the one. PyTorch/XLA bounds its graphs too
    (``XLA_TRIM_GRAPH_SIZE``). As there, this does not count as a barrier.
    """
    with tape.lock:
        depth = tape.node.depth
        live = tape.live()
        if depth <= 2 * tape.shed_at:
            tape.least_alive = min(len(live), tape.least_alive or len(live))
            return
        if len(live) > tape.least_alive > 0 and depth <= 4 * tape.shed_at:
            return
        tape.shed_at, tape.least_alive = depth, 0
        mostly_dead = depth > 2 * size(tape.node, slots_of(live))  # walks the whole trace: once as it doubles
    if mostly_dead:
        barrier(tape, "read", frames=frames)
