"""Running what was recorded: find or compile the program, hand it over."""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from time import perf_counter_ns
from typing import Any

import jax
from jax.profiler import TraceAnnotation

from xlaprof import events
from xlaprof.recording import recorder, stacks
from xlaprof.recording.stacks import RawFrame
from xlaprof.runtime import metrics
from xlaprof.runtime.clock import aside, clock
from xlaprof.runtime.instruments import debug, graph_dump, host_time
from xlaprof.runtime.instruments.live_tensors import gauge
from xlaprof.runtime.recompile import graph_diff
from xlaprof.runtime.tape import mode, unrolled_loops
from xlaprof.runtime.tape.graph import Graph, extract, shared, size
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.storage import NOWHERE, Storage, View

from . import failures, guard, inflight, persistent, value_checks
from .inflight import InFlight
from .program import Plan, Program, Timing, build, cache
from .upload import scalars
from .upload import upload as upload  # for those who bring arrays of their own


def barrier(
    tape: Tape, trigger: str, *, wait: bool = False, counted: bool = True, frames: tuple[RawFrame, ...] | None = None
) -> None:
    """Cut the tape: execute what its live tensors need, and begin a new walk.

    ``frames``: the user's, where they are known.

    With ``wait``, return when the device has finished. Where the graph fails, what does not depend on the failure is
    computed, the error is raised, and the runtime goes on (:mod:`.failures`). Interrupted (Ctrl-C), nothing is cut: the
    next barrier finds all as it was.
    """
    mark = trigger != "read"  # or else it is no step's end, and no event of its own
    rec = recorder.active if mark else None
    start = perf_counter_ns()
    if tape.node is tape.root and rec is None and not wait:  # nothing is pending, and nobody looks
        if mark and counted:
            metrics.count("MarkStep")
        failures.raise_untold(tape)
        return
    if frames is None:
        frames = stacks.user_frames(skip=1) if rec is not None else ()
    tid = host_time.arrive(frames) if rec is not None else 0
    asked = perf_counter_ns()
    tape.acquire()
    try:
        metrics.sample("DeviceLockWait", perf_counter_ns() - asked)
        if mark and counted:
            metrics.count("MarkStep")
        pending, loop = tape.node.depth, unrolled_loops.of(tape.node) if rec is not None else unrolled_loops.NONE
        live = _live(tape)
        guard.require_allowed(tape, live, "a barrier")
        failure = None
        try:
            arrays, run = run_walk(tape, live, _slots(live), trigger, frames, donate=True)
        except Exception as error:
            failure = error
            arrays, run = _salvage(tape, live, error, trigger, frames)
        held = 0  # of those made since the last barrier: they have no array yet
        fresh: list[Storage] | None = [] if rec is not None and gauge.is_due(start) else None
        for storage in live:
            if storage.slot in arrays:
                if storage.array is None:
                    held += 1
                    if fresh is not None:
                        fresh.append(storage)
                storage.array = arrays[storage.slot]
                if not storage.frames:
                    storage.frames = _made_at(tape, run, storage.slot)
            else:
                assert failure is not None
                failures.give_up(storage, failure)
            storage.epoch = NOWHERE
        tape.trim_views()
        tape.reset(held)
        tape.trim_trie()
        if failure is not None:
            raise failure
    finally:
        tape.release()
    if mark and debug.level:
        debug.stepped()
    if rec is not None:
        rec.emit(
            events.Barrier(
                start,
                perf_counter_ns() - start,
                trigger,
                rec.stack(frames),
                pending,
                clock.take_tracing(),
                run.seq if run is not None else 0,
                tid,
                loop.times,
                rec.stack(loop.frames) if loop.frames else 0,
                loop.ops,
                loop.shared,
            )
        )
        if fresh is not None:
            gauge.read(rec, tape, fresh)
        rec.turns += 1
        rec.breathe(perf_counter_ns())
        clock.leave(frames, tape.node)
    if wait:
        wait_for(tape, frames)
    else:
        failures.raise_untold(tape)


def _live(tape: Tape) -> list[Storage]:
    """What is alive on the tape, which is locked.

    The thread of a backward pass holds its last values for a moment after the pass. Where they would make another
    program of the graph than is known, it is waited for: what is compiled does not depend on who was faster.
    """
    live = tape.live()
    let_go, tape.let_go = tape.let_go, None
    if let_go is None or _plan_key(tape, live, _wanted(tape, _slots(live)), donate=True) in tape.node.plans:
        return live
    del live  # it holds them too
    tape.release()
    try:
        let_go()
    finally:
        tape.acquire()
    return tape.live()


def barriers(
    tapes: list[Tape], trigger: str, *, wait: bool = False, frames: tuple[RawFrame, ...] | None = None
) -> None:
    """:func:`barrier` on each of ``tapes``, whatever happens on another; of several errors the first is raised.

    It is one barrier of the program's, on however many devices: one ``MarkStep``.
    """
    first: Exception | None = None
    for i, tape in enumerate(tapes):
        try:
            barrier(tape, trigger, wait=wait, counted=i == 0, frames=frames)
        except Exception as error:
            first = first or error
    if first is not None:
        raise first


def _made_at(tape: Tape, run: InFlight | None, slot: int) -> tuple[RawFrame, ...]:
    """The user's line that made the value at ``slot``: an output of ``run``, or an input."""
    position = tape.input_at.get(slot)
    if position is not None:
        return tape.owners[position].frames
    return run.graph.places.get(slot, ()) if run is not None else ()


def _slots(storages: list[Storage]) -> tuple[int, ...]:
    return tuple(sorted({storage.slot for storage in storages}))


def _salvage(
    tape: Tape, live: list[Storage], error: Exception, trigger: str, frames: tuple[RawFrame, ...]
) -> tuple[dict[int, Any], InFlight | None]:
    """Values of the ``live`` storages that can be had although ``error`` ended their graph, and their execution."""
    for _ in range(failures.ATTEMPTS):
        culprit = getattr(error, "_xla_culprit", None)
        if culprit is None:
            break
        lost = failures.dependents(tape.node, culprit)
        live = [storage for storage in live if storage.slot not in lost]
        try:
            return run_walk(tape, live, _slots(live), trigger, frames, donate=False)
        except Exception as another:  # the first is the one that is raised
            error = another
    return {}, None


def wait_for(tape: Tape | None = None, frames: tuple[RawFrame, ...] | None = None) -> None:
    """Return when ``tape``'s device, or every device, has finished what was handed to it.

    ``frames``: the user's, where they are known.
    """
    start = perf_counter_ns()
    with aside():
        inflight.wait(tape)
    rec = recorder.active
    if rec is not None:
        if frames is None:
            frames = stacks.user_frames()
        rec.emit(events.DeviceWait(start, perf_counter_ns() - start, rec.stack(frames), rec.here.tid))
        clock.leave(frames, clock.node if tape is None else tape.node)
    failures.raise_untold(tape)


def values(
    tape: Tape, storages: list[Storage], frames: tuple[RawFrame, ...], trigger: str = "read", op: str = "a read"
) -> list[Any]:
    """The present values of ``storages``, by one execution. What was recorded stays pending, as in PyTorch/XLA.

    ``op`` names who asks.
    """
    if tape.abstract:
        raise failures.NoValue
    tape.acquire()
    try:
        if all(storage.epoch != tape.epoch and storage.array is not None for storage in storages):
            for storage in storages:
                failures.raise_if_failed(storage)
            return [storage.array for storage in storages]
        if mode.values is not None:
            return mode.values(tape, storages)
        slots = [tape.slot_of(storage) for storage in storages]
        guard.require_allowed(tape, storages, op)
        arrays, run = run_walk(tape, storages, tuple(sorted(set(slots))), trigger, frames, donate=False)
        for storage in storages:
            if not storage.frames:
                storage.frames = _made_at(tape, run, storage.slot)
        return [arrays[slot] for slot in slots]
    finally:
        tape.release()


def materialize(tape: Tape, storage: Storage, array: Any) -> None:
    """``storage`` is no longer pending: its value was read whole. What was recorded from it stays."""
    tape.acquire()
    try:
        if storage.epoch == tape.epoch and not isinstance(storage, View):
            storage.array = array
            storage.epoch = NOWHERE
    finally:
        tape.release()


def settle(tape: Tape) -> None:
    """Begin a new walk if nothing alive is pending: after a read, when what was read no longer is.

    A program that reads and never cuts (inference, mostly) would otherwise keep all it ever computed.
    """
    tape.acquire()
    try:
        if tape.node is not tape.root and not tape.live():
            tape.trim_views()
            tape.reset()
            tape.trim_trie()
    finally:
        tape.release()


def shed(tape: Tape) -> None:
    """Cut the tape if most of what is on it is dead: read value by value, it holds on to what nobody needs.

    PyTorch/XLA bounds its graphs too (``XLA_TRIM_GRAPH_SIZE``); as there, this is no barrier of the user's.
    """
    tape.acquire()
    try:
        depth = tape.node.depth
        mostly_dead = depth > 2 * size(tape.node, _slots(tape.live()))
        tape.shed_at = 2 * depth
    finally:
        tape.release()
    if mostly_dead:
        barrier(tape, "read")


def run_walk(
    tape: Tape,
    storages: list[Storage],
    slots: tuple[int, ...],
    trigger: str,
    frames: tuple[RawFrame, ...],
    *,
    donate: bool,
) -> tuple[dict[int, Any], InFlight | None]:
    """Arrays of the values at ``slots``, those of ``storages``; what made them, ``None`` where all were inputs."""
    arrays = {slot: tape.arrays[tape.input_at[slot]] for slot in slots if slot in tape.input_at}
    wanted = _wanted(tape, slots)
    if not wanted:
        return arrays, None
    end = tape.node
    plan_key = _plan_key(tape, storages, wanted, donate=donate)
    plan = end.plans.get(plan_key)
    known = None
    if plan is None:
        graph = extract(end, wanted)
        donated = _donatable(tape, graph) if donate else ()
        key: tuple[Any, ...] = (tape.index, graph.hash, donated, value_checks.enabled)
        if tape.partition is not None:
            key = (repr(tape.partition), *key[1:], tape.partition.asked(tape, storages, wanted))
        plan = end.plans[plan_key] = Plan(key, graph)
        known = graph_diff.remember(tape, trigger, frames, end, graph, plan_key, lambda: cache.peek(key))
    inflight.tick(end)
    program = cache.get(plan.key)
    try:
        if program is None:
            diff = None
            if known is not None and (recorder.active is not None or debug.level):
                diff = graph_diff.record(tape, known, storages)
            program = compile_plan(tape, plan, trigger, frames, diff)
        else:
            metrics.count("CachedCompile")
        if program.needs > failures.memory_limit(tape.device) > 0:  # told before any input is given up
            raise failures.OutOfMemory(program.needs)
        results, run = _execute(tape, plan.graph, program, trigger, frames)
    except Exception as error:
        raise failures.explain(error, tape, plan.graph, frames or stacks.user_frames(1)) from error
    arrays.update(zip(wanted, results, strict=True))
    return arrays, run


def _wanted(tape: Tape, slots: tuple[int, ...]) -> tuple[int, ...]:
    """Those of ``slots`` that a program has to compute: the others are inputs."""
    return tuple(slot for slot in slots if slot not in tape.input_at)


def _plan_key(tape: Tape, storages: list[Storage], wanted: tuple[int, ...], *, donate: bool) -> tuple[Any, ...]:
    """What names the plan for ``wanted``, of ``storages``, where the walk has come to."""
    asked = () if tape.partition is None else tape.partition.asked(tape, storages, wanted)
    key: tuple[Any, ...] = (*asked, *(wanted if donate else (-1, *wanted)))
    return (-2, *key) if value_checks.enabled else key  # programs that check values are others


def _donatable(tape: Tape, graph: Graph) -> tuple[int, ...]:
    """Numbers of the graph's inputs whose storage is overwritten by one of its outputs."""
    epoch, outs = tape.epoch, set(graph.outs)
    return tuple(
        i
        for i, (slot, position) in enumerate(zip(graph.inputs, graph.positions, strict=True))
        if (owner := tape.owners[position]).epoch == epoch and owner.slot != slot and owner.slot in outs
    )


def compile_plan(
    tape: Tape,
    plan: Plan,
    trigger: str,
    frames: tuple[RawFrame, ...],
    diff: graph_diff.Recorded | None,
    make: Callable[[int, Plan], tuple[Program, Timing]] | None = None,
) -> Program:
    """Compile ``plan``'s graph, by ``make`` where it is another program than usual; keep that, and tell why."""
    graph = plan.graph
    start = perf_counter_ns()
    if graph.hash in cache.forgotten:
        diff = graph_diff.record_eviction(cache.limit, frames)
    rec = recorder.active
    if rec is not None:  # it may take minutes: whoever watches is told now
        rec.emit(events.Compiling(start, len(graph.nodes), rec.stack(frames), trigger, rec.thread()))
    if debug.level:
        debug.compiling(trigger, graph, diff.text() if diff is not None else [])
    graph_dump.look()
    hits = persistent.hits()
    number = cache.number()
    with aside():  # or else it would be told as tracing too
        if make is not None:
            program, timing = make(number, plan)
        else:
            program, timing = build(number, plan.key, graph, tape.device, plan.key[2], partition=tape.partition)
    took = perf_counter_ns() - start
    found = persistent.hits() > hits
    metrics.count("UncachedCompile")
    metrics.count("CreateCompileHandles")
    if persistent.folder() is not None:
        metrics.count("PersistentCacheHit" if found else "PersistentCacheMiss")
    kind = "EagerOpCompileTime" if trigger == "eager" else "CompileTime"
    metrics.samples((kind, took), ("InputOutputAliasCount", len(program.donated)))
    if debug.level:
        debug.compiled(trigger, graph, program.compiled.memory_analysis())
    gone = cache.put(program)
    rec = recorder.active
    if rec is not None:
        loop = unrolled_loops.of(tape.node)
        rec.emit(
            events.Compile(
                start,
                took,
                program.number,
                graph.hash,
                len(graph.nodes),
                len(graph.inputs),
                len(graph.outs),
                rec.stack(frames),
                trigger,
                None,
                timing.lower,
                timing.backend,
                found,
                rec.thread(),
                loop.times,
                rec.stack(loop.frames) if loop.frames else 0,
                loop.ops,
                loop.shared,
                _again(tape, graph) if trigger == "read" else -1,
                diff.of(rec) if diff is not None else None,
            )
        )
        for old in gone:
            rec.emit(events.Evicted(perf_counter_ns(), old.number, old.hash, cache.limit))
    return program


def _again(tape: Tape, graph: Graph) -> int:
    """Operations of a read's graph that what else is alive depends on, too: the next barrier runs them once more."""
    return shared(tape.node, graph, tuple(slot for slot in _slots(tape.live()) if slot not in graph.outs))


def _execute(
    tape: Tape, graph: Graph, program: Program, trigger: str, frames: tuple[RawFrame, ...]
) -> tuple[list[Any], InFlight]:
    began = perf_counter_ns()
    inputs = [tape.arrays[position] for position in graph.positions]
    for i in program.donated:
        owner = tape.owners[graph.positions[i]]
        still_shown = owner.epoch != tape.epoch or owner.slot == graph.inputs[i]
        # 4: the storage's, the tape's, this list's and getrefcount's. More: somebody else shows this buffer.
        if still_shown or getrefcount(inputs[i]) > 4:
            with jax.enable_x64(True):
                inputs[i] = jax.numpy.array(inputs[i], copy=True)
    numbers = scalars(tape, graph, program, frames)
    start = perf_counter_ns()
    with jax.enable_x64(True), TraceAnnotation("PjRtComputationClient::ExecuteComputation"):
        *results, token = program.compiled(*numbers, *inputs)
    if tape.partition is not None:
        results = tape.partition.settled(results)
    end = perf_counter_ns()
    run = inflight.add(tape, program, start, end - start, token, trigger, frames, graph, results)
    metrics.count("ExecuteComputation")
    metrics.count("CreateDataHandles", len(results))
    metrics.samples(
        ("TensorsGraphSize", len(graph.nodes)),
        ("UnwrapXlaData", start - began),
        ("WrapXlaData", perf_counter_ns() - end),
    )
    return results, run
