"""Reads before a barrier: the part of the graph that a value needs is run, and all that was recorded stays pending."""

from __future__ import annotations

from typing import Any

from xlaprof.recording.stacks import RawFrame
from xlaprof.runtime.tape import mode
from xlaprof.runtime.tape.graph import size
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.storage import NOWHERE, Storage, View

from . import failures, guard
from .barrier import barrier
from .plans import slots_of
from .run import made_at, run_trace


def values(
    tape: Tape, storages: list[Storage], frames: tuple[RawFrame, ...], trigger: str = "read", op: str = "a read"
) -> list[Any]:
    """The present values of ``storages``, by one execution. What was recorded stays pending, as in PyTorch/XLA.

    ``op`` names who asks.
    """
    if tape.abstract:
        raise failures.NoValue
    with tape.lock:
        if all(storage.epoch != tape.epoch and storage.array is not None for storage in storages):
            for storage in storages:
                failures.raise_if_failed(storage)
            return [storage.array for storage in storages]
        if mode.eager_values is not None:
            return mode.eager_values(tape, storages)
        slots = [tape.slot_of(storage) for storage in storages]
        guard.require_allowed(tape, storages, op)
        arrays, run = run_trace(tape, storages, tuple(sorted(set(slots))), trigger, frames, donate=False)
        for storage in storages:
            if not storage.frames:
                storage.frames = made_at(tape, run, storage.slot)
        return [arrays[slot] for slot in slots]


def materialize(tape: Tape, storage: Storage, array: Any) -> None:
    """``storage`` is no longer pending: its value was read whole. What was recorded from it stays."""
    with tape.lock:
        if storage.epoch == tape.epoch and not isinstance(storage, View):
            storage.array = array
            storage.epoch = NOWHERE


def settle(tape: Tape) -> None:
    """Begin a new trace if nothing alive is pending: after a read, when what was read no longer is.

    A program that reads and never cuts (inference, mostly) would otherwise keep all it ever computed.
    """
    with tape.lock:
        if tape.node is not tape.root and not tape.live():
            tape.begin()


def shed(tape: Tape) -> None:
    """Cut the tape if most of what is on it is dead: read value by value, it holds on to what nobody needs.

    PyTorch/XLA bounds its graphs too (``XLA_TRIM_GRAPH_SIZE``); as there, this is no barrier of the user's.
    """
    with tape.lock:
        depth = tape.node.depth
        mostly_dead = depth > 2 * size(tape.node, slots_of(tape.live()))
        tape.shed_at = 2 * depth
    if mostly_dead:
        barrier(tape, "read")
