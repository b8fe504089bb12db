"""compile_cost: one graph is so large that compiling it in two would pay.

XLA's compile time grows faster than the graph, so a graph of many thousand operations is cheaper in parts. The run's
smaller graphs show the usual time for an operation; without any, only a compile of minutes is a finding. An unrolled
loop belongs to missing_barrier, a graph that was compiled again to recompile. Cost: the compile time beyond the usual
time for all of its operations.
"""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.evidence.counted import compiles
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.fold.tallies import CompileRecord
from xlaprof.analysis.model import Finding
from xlaprof.analysis.principles import MOST
from xlaprof.analysis.whatif import replay
from xlaprof.text.quantities import duration, plural, times

_LONG_NS = 60_000_000_000  # nobody restructures a program for a shorter compile
_VERY_LONG_NS = 300_000_000_000  # a finding without smaller graphs to compare with
_LARGE = 5_000  # operations: a smaller graph compiles no faster in parts
_UNROLLED = 4  # repetitions of a line: with so many the graph holds a loop
_SLOWER = 2.0  # times the usual time for an operation: below it the fixed costs of a compile explain the difference
_FEWEST = 100  # operations of the graphs to compare with


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each place at which so large a graph was compiled."""
    seen: set[int] = set()
    for record in sorted(facts.run.compiles, key=lambda record: -record.dur):
        if record.dur < _LONG_NS or record.ops < _LARGE or record.loops >= _UNROLLED:
            continue
        if record.nth or record.cached or record.stack in seen:
            continue
        usual = _usual(facts.run.compiles, record)
        if record.dur < _VERY_LONG_NS and not (usual and record.dur >= _SLOWER * usual * record.ops):
            continue
        seen.add(record.stack)
        yield _finding(facts, record, usual)


def _usual(records: list[CompileRecord], large: CompileRecord) -> float:
    """ns for an operation in the smaller graphs of the run; 0 where there is none to compare with."""
    smaller = [one for one in records if _FEWEST <= one.ops <= MOST * large.ops and not one.cached]
    ops = sum(one.ops for one in smaller)
    return sum(one.dur for one in smaller) / ops if ops else 0.0


def _finding(facts: Facts, record: CompileRecord, usual: float) -> Finding:
    cost = (record.dur - min(usual * record.ops, record.dur)) / 1e9 if usual else record.dur / 2e9
    each = f"{duration(record.dur / record.ops / 1e9)} for an operation"
    compared = f", {record.dur / record.ops / usual:.1f} times that of the run's smaller graphs" if usual else ""
    return facts.finding(
        "compile_cost",
        facts.place(record.stack),
        count=1,
        counted=compiles([record]),
        cost_s=cost,
        cut=replay.compiles([record], 1 - cost * 1e9 / record.dur),
        cause=(
            f"One graph of {plural(record.ops, 'operation')} took {duration(record.dur / 1e9)} to compile: "
            f"{each}{compared}."
        ),
        advice=(
            "Put a barrier (sync()) between its parts, such as after the backward pass: two graphs of half the size "
            "compile faster. Keep what was compiled between runs with initialize_cache()."
        ),
        evidence=(
            f"lowering {duration(record.lower / 1e9)}, XLA {duration(record.backend / 1e9)}",
            f"{plural(record.inputs, 'input')}, {plural(record.outputs, 'output')}, "
            f"run {times(facts.run.program_runs.get(record.program, 0))}",
        ),
        confidence="medium" if usual else "low",
        rhythm="once",
    )


KIND = Kind(find, blamed_for=("max_recompiles", "max_compiles", "max_compile_time", "max_idle"))
