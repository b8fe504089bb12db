"""Eager mode: every operation is a program of its own, which runs at once and is cached.

An operation is recorded as in lazy mode, but on another trie, and the trace ends with it: the program for the last node
and the live values runs, and the next operation begins at the root again. So views, writes in place, random numbers and
errors behave as in lazy mode. Views do not run: they become part of the programs that read them. An operation of
PyTorch that records several (a decomposition, a list of tensors) is one program.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import jax

from xlaprof.recording import recorder, stacks
from xlaprof.runtime import metrics, parity
from xlaprof.runtime.execution import barrier, compiling, failures, inflight, plans, run, value_checks
from xlaprof.runtime.execution.compiling import Differs, nothing_differs
from xlaprof.runtime.execution.program import Plan, Program, cache
from xlaprof.runtime.recompile import graph_diff
from xlaprof.runtime.tape import mode, op_counters, tapes
from xlaprof.runtime.tape.graph import Graph, extract
from xlaprof.runtime.trace import tensor
from xlaprof.runtime.trace.storage import NOWHERE, Storage
from xlaprof.runtime.trace.tensor import look_in

from . import bare, bursts, numbers

if TYPE_CHECKING:
    from xlaprof.runtime.tape.tape import Tape
    from xlaprof.runtime.trace.trie import Node

#: dead views of a storage are forgotten after this many views
_VIEWS = 64
#: bytes; only larger programs are checked against the device's memory
_LARGE = 1 << 26


class _Inside(threading.local):
    #: is this thread inside an operation, so that what it records is part of that one?
    operation = False


_inside = _Inside()


# -- the mode ------------------------------------------------------------------------------------------------


def is_eager_mode() -> bool:
    """Does each operation run at once?"""
    return mode.run_recorded is not None


def eager_mode(enable: bool) -> None:
    """Run every operation at once from now on (``True``), or record them until a barrier (``False``, the default).

    As ``torch_xla.experimental.eager_mode``: for the whole process, all threads. Pending operations run when the mode
    changes. :func:`~.compile.compile` makes one graph of a function all the same.
    """
    enable = bool(enable)
    if enable is is_eager_mode():
        return
    for tape in tapes.existing():
        if tape.node is not tape.root:
            if enable:
                barrier.barrier(tape, "read")
            else:
                flush(tape)
        with tape.lock:
            tape.turn(enable)
    mode.run_recorded = _done if enable else None
    mode.eager_values = values if enable else None
    mode.wait_for_eager = _wait
    look_in(*((HANDLERS, _at_once) if enable else (tensor.HANDLERS, None)))


@contextmanager
def eager_mode_context(enable: bool) -> Iterator[bool]:
    """:func:`eager_mode` inside of ``with``; gives what it was before, and restores that."""
    before = is_eager_mode()
    eager_mode(enable)
    try:
        yield before
    finally:
        eager_mode(before)


#: id of an overload -> its handler in eager mode
HANDLERS: dict[int, Any] = {}
parity.on_change.append(HANDLERS.clear)


def _at_once(handler: Any) -> Any:
    """The handler of eager mode: calls that of lazy mode, then runs what it has recorded."""

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _inside.operation:
            return handler(args, kwargs)
        _inside.operation = True
        try:
            result = handler(args, kwargs)
        finally:
            _inside.operation = False
        for tape in tapes.existing():
            if tape.node is not tape.root:
                flush(tape)
        return result

    return run


def _done() -> None:
    if not _inside.operation:
        for tape in tapes.existing():
            if tape.node is not tape.root:
                flush(tape)


# -- running -------------------------------------------------------------------------------------------------


class Ready:
    """How to run the trace that ends at a node: the program, and where its arguments are."""

    __slots__ = ("graph", "kept", "key", "node", "numbers", "packed", "passed", "positions", "shared", "uses")

    def __init__(self, tape: Tape, slots: tuple[int, ...]) -> None:
        self.node = tape.node
        self.uses = 0  # not counted yet
        computed = plans.computed(tape, slots)
        #: for each of ``slots``: its index among the inputs, or -1 for the program's next result
        self.passed = tuple(tape.input_at.get(slot, -1) for slot in slots) if len(computed) < len(slots) else ()
        self.graph: Graph | None = extract(tape.node, computed, tape.input_at) if computed else None
        if self.graph is not None:
            self.positions = self.graph.positions
            #: does it run on several devices? Then it runs as at a barrier
            self.shared = tape.partition is not None or any(
                getattr(node.op, "collective", False) for node in self.graph.nodes
            )
            self.packed = bool(self.graph.floats or self.graph.ints or self.graph.seeds)
            #: the packed numbers of the last run and their arrays, if those are on the device
            self.numbers: tuple[Any, ...] | None = None
            self.kept: list[Any] = []
            self.key = (tape.index, self.graph.hash, (), False, "eager")


def flush(tape: Tape) -> None:
    """Run the graph of the live values, and begin the next trace."""
    with tape.lock:
        _flush(tape)


def _flush(tape: Tape) -> None:
    """:func:`flush`, with the tape's lock held."""
    live = tape.live()
    if live:
        try:
            if len(live) == 1:
                storage = live[0]
                (storage.array,) = _run(tape, (storage.slot,), live)
                storage.epoch = NOWHERE
                if not storage.frames:
                    storage.frames = tape.node.frames
            else:
                slots = plans.slots_of(live)
                arrays = dict(zip(slots, _run(tape, slots, live), strict=True))
                for storage in live:
                    storage.array = arrays[storage.slot]
                    storage.epoch = NOWHERE
                    storage.frames = storage.frames or tape.node.frames
        except Exception as error:
            for storage in live:
                if storage.epoch == tape.epoch:
                    failures.give_up(storage, error)
                    storage.epoch = NOWHERE
            _begin(tape)
            raise
    _begin(tape)


def _begin(tape: Tape) -> None:
    """Begin the next trace."""
    if tape.viewed:
        for storage in tape.viewed:
            if storage.views is not None and len(storage.views) % _VIEWS == 0:
                storage.views = [ref for ref in storage.views if ref() is not None] or None
        tape.viewed.clear()
    tape.node = tape.root  # so that reset() counts no trace: see _settle
    tape.reset()
    tape.trim_trie()


def values(tape: Tape, storages: list[Storage]) -> list[Any]:
    """The current values of ``storages``, with the tape's lock held. Pending operations run too."""
    _flush(tape)
    slots = [tape.slot_of(storage) for storage in storages]
    distinct = tuple(sorted(set(slots)))
    try:
        arrays = dict(zip(distinct, _run(tape, distinct, storages), strict=True))
    finally:
        _begin(tape)
    return [arrays[slot] for slot in slots]


def _run(tape: Tape, slots: tuple[int, ...], storages: list[Storage]) -> list[Any]:
    """Arrays of the values at ``slots``, in ascending order, those of ``storages``."""
    global _cached, _running
    node = tape.node
    ready: Ready | None = node.plans.get(slots)
    if ready is None:
        ready = node.plans[slots] = Ready(tape, slots)
    if not ready.uses:
        _used.append(ready)
    ready.uses += 1
    plans.use(node)
    graph = ready.graph
    if graph is None:
        return [tape.arrays[place] for place in ready.passed]
    if value_checks.enabled or ready.shared:
        return _run_as_barriers_do(tape, slots, storages)
    program = cache.get(ready.key)
    try:
        if program is None:
            program = _compile(tape, ready, graph)
        else:
            _cached += 1
        if program.needs > _LARGE and program.needs > failures.memory_limit(tape.device) > 0:
            raise failures.OutOfMemory(program.needs)
        _running = True
        results = _call(tape, ready, graph, program)
    except Exception as error:
        raise failures.explain(error, tape, graph, stacks.user_frames(1)) from error
    if ready.passed:
        made = iter(results)
        return [next(made) if place < 0 else tape.arrays[place] for place in ready.passed]
    return results


def _call(tape: Tape, ready: Ready, graph: Graph, program: Program) -> list[Any]:
    arrays = tape.arrays
    given = [arrays[position] for position in ready.positions]
    results: list[Any]
    start = perf_counter_ns()
    if ready.packed:
        now = numbers.of(tape, graph)
        if now is not None and now == ready.numbers:
            results = program.compiled(*ready.kept, *given)
        else:
            with jax.enable_x64(True):  # else jax makes float64 float32
                packed, kept = numbers.packed(tape, graph)
                results = program.compiled(*packed, *given)
            if kept:
                ready.numbers, ready.kept = now, packed
    else:
        results = program.compiled(*given)
    took = perf_counter_ns() - start
    metric = metrics.metric("EagerOpExecuteTime")
    metric.count += 1
    metric.total += took
    metric.samples.append((start * 1e-9, took))
    if recorder.active is not None:
        bursts.note(tape, graph, program, start, took, results)
    return results


def _compile(tape: Tape, ready: Ready, graph: Graph) -> Program:
    rec = recorder.active
    frames = stacks.user_frames() if rec is not None else ()
    differs: Differs = nothing_differs
    if rec is not None and _comes_again(rec, ready.node):
        differs = functools.partial(graph_diff.record_departure, tape, ready.node, graph.outs)
    plan = Plan(ready.key, graph)
    return compiling.compile_plan(
        tape, plan, "eager", frames, differs, lambda number, plan: bare.build(number, plan, tape.device)
    )


#: the recording, and (operator, line) -> the number of the step in which a program was first compiled there
_places: tuple[recorder.Recorder | None, dict[Any, int]] = (None, {})


def _comes_again(rec: recorder.Recorder, node: Node) -> bool:
    """Was a program compiled for this line in an earlier step? Within one step, a line may have any shapes."""
    global _places
    if _places[0] is not rec:
        _places = (rec, {})
    line = (node.frames[0].file, node.frames[0].line) if node.frames else ()
    return _places[1].setdefault((node.op, line), rec.turns) < rec.turns


def _wait(tape: Tape | None) -> None:
    """Wait for the values on the device of ``tape``, or on all devices."""
    global _running
    bursts.close(tape)
    if not _running:
        return
    _running = tape is not None  # another tape's may be
    for device in [tape.device] if tape is not None else tapes.devices():
        for array in jax.live_arrays(device.platform):
            if not array.is_deleted() and device in array.devices():
                with suppress(Exception):  # raised where it is read
                    array.block_until_ready()


def _run_as_barriers_do(tape: Tape, slots: tuple[int, ...], storages: list[Storage]) -> list[Any]:
    """Run an operation on several devices, or under debug checks, whose errors are raised at once."""
    start = perf_counter_ns()
    arrays, _ = run.run_trace(tape, storages, "eager", stacks.user_frames(1), donate=False)
    metrics.sample("EagerOpExecuteTime", perf_counter_ns() - start)
    if value_checks.enabled:
        inflight.wait(tape)
        failures.raise_unreported(tape)
    return [arrays[slot] for slot in slots]


#: what ran since counters were last read, and how often its program was cached
_used: list[Ready] = []
_cached = 0
#: has anything run since the last wait for all?
_running = False


def _settle() -> None:
    """Count the operations that ran: each only notes itself."""
    global _cached
    used, _used[:] = _used[:], []
    for ready in used:
        times, ready.uses = ready.uses, 0
        op_counters.recorded(ready.node, times=times)
    times, _cached = _cached, 0
    if times:
        metrics.count("CachedCompile", times)


metrics.before_reading(_settle)
