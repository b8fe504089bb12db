"""Compiles a graph that has no program yet: timed, counted, passed to instruments, recorded."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as once
from time import perf_counter_ns

import msgspec

from xlaprof import events
from xlaprof.recording import recorder
from xlaprof.recording.stacks import RawFrame
from xlaprof.runtime import metrics
from xlaprof.runtime.clock import aside
from xlaprof.runtime.instruments import hooks
from xlaprof.runtime.recompile import graph_diff
from xlaprof.runtime.tape import unrolled_loops
from xlaprof.runtime.tape.graph import Graph, shared
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.trie import Unrolled

from . import texts
from .build import build
from .plans import slots_of
from .program import Plan, Program, Timing, cache

#: how a graph differs from the known ones, computed when called
Differs = Callable[[], graph_diff.Recorded | None]


def nothing_differs() -> None:
    """The graph is compiled without a diff."""


def compile_plan(
    tape: Tape,
    plan: Plan,
    trigger: str,
    frames: tuple[RawFrame, ...],
    differs: Differs = nothing_differs,
    make: Callable[[int, Plan], tuple[Program, Timing]] | None = None,
) -> Program:
    """Compile ``plan``'s graph, by ``make`` if given, and keep the program.

    ``differs`` computes how the graph differs from the known ones; it is called only if the diff is recorded or shown.
    """
    graph = plan.graph
    with aside():  # not tracing
        start = perf_counter_ns()
        if graph.hash in cache.forgotten:
            differs = lambda: graph_diff.record_eviction(cache.limit, frames)  # noqa: E731
        diff = once(differs)
        rec = recorder.active
        if rec is not None:  # announced before the compilation, which may take minutes
            first = found.first() if (found := diff()) is not None and found.of(rec) is not None else None
            begins = events.Compiling(
                start, len(graph.nodes), rec.stack(frames), trigger, rec.thread(), first, "" if make else "lowering"
            )
            rec.emit(begins)
        for notify in hooks.compiling:
            notify(trigger, graph, lambda: found.text() if (found := diff()) is not None else [])
        number = cache.number()
        if make is not None:
            program, timing = make(number, plan)
        else:

            def lowered() -> None:
                if rec is not None and rec is recorder.active:
                    now = perf_counter_ns()
                    rec.emit(msgspec.structs.replace(begins, t=now, phase="XLA", spent=now - start))

            program, timing = build(
                number, plan.key, graph, tape.device, plan.key[2], partition=tape.partition, lowered=lowered
            )
    took = perf_counter_ns() - start
    for notify_compiled in hooks.compiled:
        notify_compiled(trigger, graph, program.compiled)
    if recorder.active is not None:
        record(tape, graph, program, timing, start, took, trigger, frames, unrolled_loops.of(tape.node), diff())
    keep(program, trigger, took)
    return program


def keep(program: Program, trigger: str, took: int) -> None:
    """Keep a program that was made in ``took`` ns, and count it."""
    metrics.count("UncachedCompile")
    metrics.count("CreateCompileHandles")
    kind = "EagerOpCompileTime" if trigger == "eager" else "CompileTime"
    metrics.samples((kind, took), ("InputOutputAliasCount", len(program.donated)))
    gone = cache.put(program)
    rec = recorder.active
    if rec is not None:
        for old in gone:
            rec.emit(events.Evicted(perf_counter_ns(), old.number, old.hash, cache.limit))


def record(
    tape: Tape,
    graph: Graph,
    program: Program,
    timing: Timing,
    start: int,
    took: int,
    trigger: str,
    frames: tuple[RawFrame, ...],
    loop: Unrolled,
    found: graph_diff.Recorded | None = None,
) -> None:
    """Write the compilation of ``program`` to the log, if there is one; ``found``: how its graph differs."""
    rec = recorder.active
    if rec is None:
        return
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
            timing.from_disk,
            rec.thread(),
            loop.times,
            rec.stack(loop.frames),
            loop.ops,
            loop.shared,
            _run_again(tape, graph) if trigger == "read" else -1,
            found.of(rec) if found is not None else None,
            list(loop.turns),
            loop.trains,
            loop.learns,
            timing.spared,
            timing.kept,
            timing.unkept,
            *(timing.needs or ()),
        )
    )
    if rec.keeps_code:
        with aside():
            texts.keep(rec, tape, graph, program, timing.lowered, rec.stack(frames))


def _run_again(tape: Tape, graph: Graph) -> int:
    """Operations of a read's graph that other live values need too: the next barrier runs them once more."""
    return shared(tape.node, graph, tuple(slot for slot in slots_of(tape.live()) if slot not in graph.outs))
