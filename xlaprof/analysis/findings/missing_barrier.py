"""missing_barrier: a loop without a barrier, unrolled into one graph.

Told from steps that pass without anything cutting the graph, and, in programs that name no steps, from graphs cut
only by a read in which one line recorded the same operation again and again. Cost: the compile time of these
graphs, all but what one repetition of the loop needs.
"""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.facts import Facts, seconds
from xlaprof.analysis.model import Finding
from xlaprof.analysis.tallies import CompileRecord, Site

STEPS = 8  # in one graph
REPEATS = 10  # of one line in one graph


def find(facts: Facts) -> Iterator[Finding]:
    """At most one finding: the loop that has no barrier."""
    run = facts.run
    unrolled = max((tally.worst_unbarred for name, tally in run.steps.items() if name), default=0)
    barriers = sum(site.executed for site in run.sites.values() if site.trigger != "read")
    if not run.compiles:
        return
    if unrolled >= STEPS or (unrolled >= 3 and not barriers):
        stack, loops = _longest_loop(list(run.sites.values()))
        yield _finding(facts, stack or _largest(run.compiles).stack, max(unrolled, loops), "steps")
        return
    reads = [site for site in run.sites.values() if site.trigger == "read" and site.loops >= REPEATS]
    if reads and not facts.named_steps and barriers <= 1:
        stack, loops = _longest_loop(reads)
        yield _finding(facts, stack, loops, "repetitions of one line")


def _longest_loop(sites: list[Site]) -> tuple[int, int]:
    longest = max(sites, key=lambda site: site.loops, default=None)
    return (longest.loop, longest.loops) if longest is not None else (0, 0)


def _largest(compiles: list[CompileRecord]) -> CompileRecord:
    return max(compiles, key=lambda record: record.ops)


def _finding(facts: Facts, stack: int, count: int, noun: str) -> Finding:
    largest = _largest(facts.run.compiles)
    cost = sum(record.dur for record in facts.run.compiles if record.ops * 2 > largest.ops) / 1e9
    cut = facts.names.place(largest.stack)
    # The repeated line may lie deep in the model: the loop is in the function that both it and the cut are called from.
    place = facts.names.bracket(stack, largest.stack)[0]
    by = f"the read at line {cut.line}" if cut.line else "the first read"
    return facts.finding(
        "missing_barrier",
        place,
        count=count,
        cost_s=cost * (count - 1) / max(1, count),
        cause=(
            f"No barrier ends the graph inside the loop: {count} {noun} became one graph of {largest.ops:,} "
            f"operations, compiled and run only by {by} ({seconds(largest.dur / 1e9)} to compile)."
        ),
        advice="Call xlaprof.runtime.sync() at the end of every repetition: one small graph is then compiled once.",
    )
