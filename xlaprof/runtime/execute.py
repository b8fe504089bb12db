"""Running what was recorded: find or compile the program, hand it over."""

from __future__ import annotations

from sys import getrefcount
from time import perf_counter_ns
from typing import Any

import jax
import numpy as np

from xlaprof import events, recorder, stacks
from xlaprof.stacks import RawFrame

from . import explain, inflight, metrics, observe
from .cells import NOWHERE, Cell, Failed, View
from .clock import aside, clock
from .graph import Graph, extract
from .inflight import InFlight
from .program import Plan, Program, build, cache
from .tape import Tape
from .trie import Node


def barrier(tape: Tape, trigger: str, *, wait: bool = False) -> None:
    """Cut the tape: execute what its live tensors need, and begin a new walk.

    With ``wait``, return when the device has finished. Raises what compiling raised; the tensors that waited for it are
    then failed, and the runtime goes on.
    """
    rec = recorder.active
    start = perf_counter_ns()
    frames = stacks.user_frames() if rec is not None else ()
    if rec is not None:
        observe.arrive(frames)
    tape.acquire()
    try:
        metrics.count("MarkStep")
        pending, loops = tape.node.depth, _loops(tape.node) if rec is not None else None
        live = tape.live()
        try:
            arrays, run = _run(tape, tuple(sorted({cell.slot for cell in live})), trigger, frames, donate=True)
            for cell in live:
                cell.array = arrays[cell.slot]
        except Exception as error:
            at = (frames or stacks.user_frames(1))[0]
            place = f"in the graph cut at {at.file}:{at.line}"
            error.add_note(f"xlaprof: {place}")
            for cell in live:
                cell.array = Failed(error, place)
            raise
        finally:
            for cell in live:
                cell.epoch = NOWHERE
            tape.trim_views()
            tape.reset()
            tape.trim_trie()
    finally:
        tape.release()
    if rec is not None:
        count, line = loops or (0, ())
        rec.emit(
            events.Barrier(
                start,
                perf_counter_ns() - start,
                trigger,
                rec.stack(frames),
                pending,
                clock.take_tracing(),
                run.seq if run is not None else 0,
                rec.thread(),
                count,
                rec.stack(line) if line else 0,
            )
        )
        rec.breathe(perf_counter_ns())
        clock.leave(frames, tape.node)
    if wait:
        wait_for(tape)


def wait_for(tape: Tape | None = None) -> None:
    """Return when ``tape``'s device, or every device, has finished what was handed to it."""
    start = perf_counter_ns()
    with aside():
        inflight.wait(tape)
    rec = recorder.active
    if rec is not None:
        frames = stacks.user_frames()
        rec.emit(events.DeviceWait(start, perf_counter_ns() - start, rec.stack(frames), rec.thread()))
        clock.leave(frames, clock.node if tape is None else tape.node)


def value(tape: Tape, cell: Cell, frames: tuple[RawFrame, ...], trigger: str = "read") -> Any:
    """The present value of ``cell`` as a ``jax.Array`` (which may still be on its way). The tape stays as it is."""
    return values(tape, [cell], frames, trigger)[0]


def values(tape: Tape, cells: list[Cell], frames: tuple[RawFrame, ...], trigger: str = "read") -> list[Any]:
    """The present values of ``cells``, by one execution. What was recorded stays pending, as in PyTorch/XLA."""
    tape.acquire()
    try:
        if all(cell.epoch != tape.epoch and not isinstance(cell, View) and cell.array is not None for cell in cells):
            for cell in cells:
                _raise_if_failed(cell)
            return [cell.array for cell in cells]
        slots = [tape.slot_of(cell) for cell in cells]
        arrays, _ = _run(tape, tuple(sorted(set(slots))), trigger, frames, donate=False)
        return [arrays[slot] for slot in slots]
    finally:
        tape.release()


def materialize(tape: Tape, cell: Cell, array: Any) -> None:
    """``cell`` is no longer pending: its value was read whole. What was recorded from it stays."""
    tape.acquire()
    try:
        if cell.epoch == tape.epoch and not isinstance(cell, View):
            cell.array = array
            cell.epoch = NOWHERE
    finally:
        tape.release()


def _raise_if_failed(cell: Cell) -> None:
    if type(cell.array) is Failed:
        raise RuntimeError(
            f"the computation of this tensor failed ({cell.array.place}): {cell.array.error}"
        ) from cell.array.error


def _run(
    tape: Tape, slots: tuple[int, ...], trigger: str, frames: tuple[RawFrame, ...], *, donate: bool
) -> tuple[dict[int, Any], InFlight | None]:
    """Arrays of the values at ``slots``; the execution that makes them, ``None`` where all were inputs."""
    arrays = {slot: tape.arrays[tape.input_at[slot]] for slot in slots if slot in tape.input_at}
    wanted = tuple(slot for slot in slots if slot not in arrays)
    if not wanted:
        return arrays, None
    end = tape.node
    plan_key = wanted if donate else (-1, *wanted)
    plan = end.plans.get(plan_key)
    reason = None
    if plan is None:
        reason = explain.reason(tape.divergence, end, plan_key)
        graph = extract(end, wanted)
        donated = _donatable(tape, graph) if donate else ()
        plan = end.plans[plan_key] = Plan((tape.index, graph.hash, donated), graph)
    inflight.tick(end)
    program = cache.get(plan.key)
    if program is None:
        program = _compile(tape, plan, trigger, frames, reason)
    else:
        metrics.count("CachedCompile")
    results, run = _execute(tape, plan.graph, program, trigger, frames)
    arrays.update(zip(wanted, results, strict=True))
    return arrays, run


def _donatable(tape: Tape, graph: Graph) -> tuple[int, ...]:
    """Numbers of the graph's inputs whose storage is overwritten by one of its outputs."""
    epoch, outs = tape.epoch, set(graph.outs)
    return tuple(
        i
        for i, (slot, position) in enumerate(zip(graph.inputs, graph.positions, strict=True))
        if (owner := tape.owners[position]).epoch == epoch and owner.slot != slot and owner.slot in outs
    )


def _compile(
    tape: Tape, plan: Plan, trigger: str, frames: tuple[RawFrame, ...], reason: explain.Reason | None
) -> Program:
    graph = plan.graph
    start = perf_counter_ns()
    if graph.hash in cache.forgotten:
        limit = f"{cache.limit} programs"
        reason = explain.Reason(
            "evicted", "compiled", "forgotten", f"compile cache of {limit}", frames, frames, 0, True
        )
    rec = recorder.active
    if rec is not None:  # it may take minutes: whoever watches is told now
        rec.emit(events.Compiling(start, len(graph.nodes), rec.stack(frames), trigger, rec.thread()))
    hits = persistent_hits()
    program, timing = build(cache.number(), plan.key, graph, tape.device, plan.key[2])
    took = perf_counter_ns() - start
    metrics.count("UncachedCompile")
    metrics.sample("CompileTime", took)
    gone = cache.put(program)
    rec = recorder.active
    if rec is not None:
        count, line = _loops(tape.node)
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
                reason.event(rec) if reason is not None else None,
                timing.lower,
                timing.backend,
                persistent_hits() > hits,
                rec.thread(),
                count,
                rec.stack(line) if line else 0,
            )
        )
        for old in gone:
            rec.emit(events.Evicted(perf_counter_ns(), old.number, old.hash, cache.limit))
    return program


def _execute(
    tape: Tape, graph: Graph, program: Program, trigger: str, frames: tuple[RawFrame, ...]
) -> tuple[list[Any], InFlight]:
    inputs = [tape.arrays[position] for position in graph.positions]
    for i in program.donated:
        owner = tape.owners[graph.positions[i]]
        still_shown = owner.epoch != tape.epoch or owner.slot == graph.inputs[i]
        # 4: the cell's, the tape's, this list's and getrefcount's. More: somebody else shows this buffer.
        if still_shown or getrefcount(inputs[i]) > 4:
            with jax.enable_x64(True):
                inputs[i] = jax.numpy.array(inputs[i], copy=True)
    scalars = _scalars(tape, graph, program)
    start = perf_counter_ns()
    with jax.enable_x64(True):
        *results, token = program.compiled(*scalars, *inputs)
    end = perf_counter_ns()
    return results, inflight.add(tape, program.number, start, end - start, token, trigger, frames)


def _scalars(tape: Tape, graph: Graph, program: Program) -> tuple[Any, Any, Any]:
    """The packed scalars on the device; what did not change since the last run is there already."""
    now = (
        tuple([tape.floats[p.index] for p in graph.floats]),
        tuple([tape.ints[p.index] for p in graph.ints]),
        tuple([tape.seeds[row] for row in graph.seeds]),
    )
    before, there = program.scalars, program.uploaded
    if there is not None and now == before:
        return there
    fresh = []
    for i, (values_, dtype) in enumerate(zip(now, (np.float64, np.int64, np.uint32), strict=True)):
        if there is not None and before[i] == values_:
            fresh.append(there[i])
            continue
        array = np.array(values_, dtype)
        fresh.append(upload(tape, array.reshape(len(values_), 2) if i == 2 else array, count=bool(values_)))
    program.scalars, program.uploaded = now, (fresh[0], fresh[1], fresh[2])
    return program.uploaded


def upload(tape: Tape, host: np.ndarray[Any, Any], *, count: bool = True) -> Any:
    """A copy of ``host`` on the tape's device, as a ``jax.Array``."""
    start = perf_counter_ns()
    with aside(), jax.enable_x64(True):
        # jax may read the memory later, or use it as the buffer: give it memory nobody else writes to.
        array = jax.device_put(host.copy(), tape.device)
    if count:
        took = perf_counter_ns() - start
        metrics.sample("TransferToDeviceTime", took)
        rec = recorder.active
        if rec is not None:
            rec.emit(
                events.TransferToDevice(start, took, host.nbytes, 1, rec.stack(stacks.user_frames()), rec.thread())
            )
    return array


def _loops(end: Node) -> tuple[int, tuple[RawFrame, ...]]:
    """How often the line that repeats itself most recorded the same operation on the walk to ``end``."""
    if end.loops is None:
        seen: dict[Any, list[Node]] = {}
        for node in end.path():
            if node.frames and node.op is not None and node.op.func is not None:
                seen.setdefault((node.op, node.frames), []).append(node)
        most = max(seen.values(), key=len, default=[])
        end.loops = (len(most), most[0].frames if most else ())
    return end.loops


_persistent_hits = 0


def persistent_hits() -> int:
    """Programs that came from the persistent compilation cache so far."""
    return _persistent_hits


def initialize_cache(path: str, readonly: bool = False) -> None:
    """Keep compiled programs in the folder ``path`` between runs (``torch_xla.runtime.initialize_cache``).

    This is jax's persistent compilation cache; it is set for the whole process.
    """
    jax.config.update("jax_compilation_cache_dir", path)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0 if not readonly else float("inf"))
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.monitoring.register_event_listener(_on_jax_event)


def _on_jax_event(event: str, **_: Any) -> None:
    global _persistent_hits
    if event == "/jax/compilation_cache/cache_hits":
        _persistent_hits += 1
