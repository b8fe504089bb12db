"""Runs what was recorded: plan, program, hand over. The tape stays locked throughout."""

from __future__ import annotations

from collections.abc import Iterable
from sys import getrefcount
from time import perf_counter_ns
from typing import Any

import jax
from jax.profiler import TraceAnnotation
from torch._C._dynamo.eval_frame import set_eval_frame

from xlaprof.recording import stacks
from xlaprof.recording.frozen import RecompileError
from xlaprof.recording.stacks import RawFrame
from xlaprof.runtime import metrics
from xlaprof.runtime.recompile import graph_diff
from xlaprof.runtime.tape import mode
from xlaprof.runtime.tape.graph import Graph
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.storage import Storage

from . import donors, failures, inflight, plans
from .compiling import compile_plan, nothing_differs
from .inflight import InFlight
from .program import Program, cache
from .upload import scalars


def run_trace(
    tape: Tape,
    storages: list[Storage],
    trigger: str,
    frames: tuple[RawFrame, ...],
    *,
    donate: bool,
) -> tuple[dict[int, Any], InFlight | None]:
    """Arrays of the values of ``storages`` by slot; and the execution, ``None`` if all are inputs."""
    slots = plans.slots_of(storages)
    computed = plans.computed(tape, slots)
    if not computed:
        return _of_inputs(tape, slots), None
    # A barrier or a read between two graphs of torch.compile: Dynamo would look at the frames of jax that compile the
    # program, and sets PyTorch's default dtype around that, for which the tapes are locked.
    looking = set_eval_frame(None)
    try:
        return _run(tape, storages, slots, computed, trigger, frames, donate=donate)
    finally:
        set_eval_frame(looking)
        tape.take_back()


def _run(
    tape: Tape,
    storages: list[Storage],
    slots: tuple[int, ...],
    computed: tuple[int, ...],
    trigger: str,
    frames: tuple[RawFrame, ...],
    *,
    donate: bool,
) -> tuple[dict[int, Any], InFlight | None]:
    plan, new = plans.find(tape, storages, computed, trigger, frames, donate=donate)
    kept = {slot for slot in slots if slot in tape.input_at}
    if mode.dry is not None:
        return {**_of_inputs(tape, kept), **mode.dry.run(tape, plan, storages)}, None
    program = cache.get(plan.key) or cache.awaited(plan.key)
    try:
        if program is None:
            differs = (lambda: graph_diff.record(tape, new, storages)) if new is not None else nothing_differs
            program = compile_plan(tape, plan, trigger, frames, differs)
        else:
            metrics.count("CachedCompile")
        if program.needs > failures.memory_limit(tape.device) > 0:  # before any input is donated
            raise failures.OutOfMemory(program.needs)
        results, run = _hand_over(tape, plan.graph, program, kept, trigger, frames)
    except RecompileError:  # the program is frozen: no failure of the graph
        if new is not None:
            plans.forget(tape, new)
        raise
    except Exception as error:
        raise failures.explain(error, tape, plan.graph, frames or stacks.user_frames(1)) from error
    return {**_of_inputs(tape, kept), **dict(zip(plan.graph.outs, results, strict=True))}, run


def _of_inputs(tape: Tape, slots: Iterable[int]) -> dict[int, Any]:
    return {slot: tape.arrays[tape.input_at[slot]] for slot in slots}


def _hand_over(
    tape: Tape, graph: Graph, program: Program, kept: set[int], trigger: str, frames: tuple[RawFrame, ...]
) -> tuple[list[Any], InFlight]:
    """``kept``: slots of inputs that are results, too: as that of ``source`` is after ``target.copy_(source)``."""
    began = perf_counter_ns()
    inputs = [tape.arrays[position] for position in graph.positions]
    given_up = []
    for i in program.donated:
        owner = tape.owners[graph.positions[i]]
        still_shown = owner.epoch != tape.epoch or owner.slot == graph.inputs[i]
        if still_shown and donors.is_marked(inputs[i]):
            given_up.append(graph.positions[i])
            still_shown = False
        # 4: the storage's, the tape's, this list's and getrefcount's. More: another holder needs this buffer.
        if still_shown or graph.inputs[i] in kept or getrefcount(inputs[i]) > 4:
            inputs[i] = jax.device_put(inputs[i], inputs[i].sharding, may_alias=False)  # compiles nothing
    numbers = scalars(tape, graph, program, frames)
    start = perf_counter_ns()
    with jax.enable_x64(True), TraceAnnotation("PjRtComputationClient::ExecuteComputation"):
        *results, token = program.compiled(*numbers, *inputs)
    if tape.partition is not None:
        results = tape.partition.with_named_shardings(results)
    for position in given_up:
        tape.arrays[position] = donors.GONE
        donors.give_up(tape.owners[position])
    end = perf_counter_ns()
    run = InFlight(tape, program.number, program.tests, start, end - start, token, trigger, frames, graph)
    inflight.add(run, results)
    metrics.count("ExecuteComputation" if tape.partition is None else "ExecuteReplicated")
    metrics.count("CreateDataHandles", len(results))
    metrics.samples(
        ("TensorsGraphSize", len(graph.nodes)),
        ("UnwrapXlaData", start - began),
        ("WrapXlaData", perf_counter_ns() - end),
    )
    return results, run


def made_at(tape: Tape, run: InFlight | None, slot: int) -> tuple[RawFrame, ...]:
    """The user's line that made the value at ``slot``: an output of ``run``, or an input."""
    position = tape.input_at.get(slot)
    if position is not None:
        return tape.owners[position].frames
    return run.graph.places.get(slot, ()) if run is not None else ()
