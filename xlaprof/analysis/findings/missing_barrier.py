"""missing_barrier: a loop without a barrier, unrolled into one graph.

It shows in three ways: named steps pass and nothing cuts the graph; in programs without named steps, only a read cuts
a graph in which one line recorded the same operation again and again; or the graph of a step holds a loop of many turns
over the same tensors (layers repeat lines too, but each has its own weights). Cost: the compile time of these graphs
beyond that of one turn of the loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.evidence.compilation import smaller
from xlaprof.analysis.evidence.counted import Known
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.evidence.looping import REPEATS, head
from xlaprof.analysis.fold.tallies import CompileRecord, Site
from xlaprof.analysis.model import Finding, Moment, Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.places import named
from xlaprof.analysis.whatif import replay
from xlaprof.text.quantities import duration, plural, times

_STEPS = 8  # in one graph: fewer may be gradient accumulation
_STEPS_WITHOUT = 3  # the same where the program has no barrier at all
_TURNS = 20  # of a loop inside a step's graph: fewer may be micro-batches
_WORK = 10  # operations in each turn: fewer are a loop over tensors
_LAYERS = ("forward", "__call__")  # functions whose loops are over layers, or over a sequence


def find(facts: Facts) -> Iterator[Finding]:
    """At most one finding."""
    run = facts.run
    if not run.compiles:
        return
    unrolled = max((tally.worst_unbarred for name, tally in run.steps.items() if name), default=0)
    barriers = sum(site.executed for site in run.sites.values() if site.trigger != "read")
    if unrolled >= _STEPS or (unrolled >= _STEPS_WITHOUT and not barriers):
        site = _longest(run.sites)
        yield _finding(facts, site, max(unrolled, run.sites[site].loops if site else 0), "steps")
        return
    reads = {stack: site for stack, site in run.sites.items() if site.trigger == "read" and site.loops >= REPEATS}
    if reads and not facts.named_steps and barriers <= 1 and not _runs_all_before(reads):
        site = _heaviest(run.compiles, reads)
        yield _finding(facts, site, reads[site].loops, "turns")
        return
    yield from _inside(facts)


def _inside(facts: Facts) -> Iterator[Finding]:
    """A loop inside the graph of a step."""
    sites = {
        stack: site
        for stack, site in facts.run.sites.items()
        if site.loop_shared and site.loops >= _TURNS and site.loop_ops >= _WORK
    }
    site = _heaviest(facts.run.compiles, sites) if sites else 0
    if site and _loop(facts, sites[site].loop, site, strict=True).line:
        yield _finding(facts, site, sites[site].loops, "turns")


def _runs_all_before(reads: dict[int, Site]) -> bool:
    """Whether each of the reads runs everything recorded before it: that is a growing_graph."""
    return any(site.longest_growth[0] >= REPEATS - 1 for site in reads.values())


def _longest(sites: dict[int, Site]) -> int:
    """The site whose graph repeats a line most often; 0: none."""
    return max(sites, key=lambda stack: sites[stack].loops, default=0)


def _remains(turns: int, per_turn: int, ops: int) -> float:
    """The share of the compile time that remains for one turn of the loop and the operations outside it."""
    once = 1 / max(1, turns)
    return smaller(max(once, 1 - (turns - 1) * per_turn / max(1, ops)) if per_turn else once)


def _heaviest(compiles: list[CompileRecord], sites: dict[int, Site]) -> int:
    """The read or barrier with the largest graph: another read may run next to nothing in each turn."""
    ops = dict.fromkeys(sites, 0)
    for record in compiles:
        if record.stack in ops:
            ops[record.stack] = max(ops[record.stack], record.ops)
    return max(ops, key=lambda stack: (ops[stack], sites[stack].loops))


def _loop(facts: Facts, repeated: int, cut: int, *, strict: bool) -> Place:
    """Head of the outermost loop around the ``repeated`` line that is not around ``cut``, where the graph ends.

    ``strict``: no loop in a module's ``forward``, which goes over layers or a sequence.
    """
    around = {head(loop) for loop in facts.names.loops(cut)}
    inner = [
        loop
        for loop in facts.names.loops(repeated)
        if head(loop) not in around and not (strict and loop.acting.func.rpartition(".")[2].startswith(_LAYERS))
    ]
    return inner[-1] if inner else NOWHERE


def _finding(facts: Facts, site: int, count: int, noun: str) -> Finding:
    run = facts.run
    own = [record for record in run.compiles if record.stack == site] or run.compiles
    largest: CompileRecord = max(own, key=lambda record: record.ops)
    cost = sum(record.dur for record in own if record.ops * 2 > largest.ops) / 1e9
    cut = facts.names.place(largest.stack)
    stack = run.sites[site].loop if site else 0
    # The repeated line may lie deep in the model. Where no loop is known, the place is the line of the function from
    # which both it and the cut are called.
    loop = _loop(facts, stack, largest.stack, strict=False)
    place = loop if loop.line else facts.names.bracket(stack or largest.stack, largest.stack)[0]
    line = facts.names.place(stack)
    is_read = largest.trigger == "read"
    by = f"by the {'read' if is_read else 'barrier'} at {named(cut)}" if cut.line else cut.file or "by the first read"
    per_turn = run.sites[site].loop_ops if site else 0
    each = f", about {per_turn:,} for each" if per_turn else ""
    remains = _remains(count, per_turn, largest.ops)
    return facts.finding(
        "missing_barrier",
        place,
        count=count,
        counted=Known((Moment(largest.t, largest.dur, count, f"one graph of {plural(largest.ops, 'operation')}"),)),
        cost_s=cost * (1 - remains),
        cut=replay.compiles((r for r in own if r.ops * 2 > largest.ops), remains),
        cause=(
            f"No barrier ends the graph inside the loop: {count} {noun} became one graph of {largest.ops:,} "
            f"operations{each}, compiled and run only {by} ({duration(largest.dur / 1e9)} to compile)."
        ),
        advice=(
            f"Call {facts.words.barrier} at the end of every turn of the loop: one small graph is then compiled once."
        ),
        evidence=(f"{plural(len(own), 'graph')} compiled there, {duration(sum(r.dur for r in own) / 1e9)} in all",),
        confidence="high" if loop.line else "medium",
        rhythm=f"{times(count)} in one graph",
        also=tuple(p for p in dict.fromkeys((cut, line)) if p.line and p != place),
        remedy=f"{loop.code}\n    ...\n    {facts.words.barrier_code}" if loop.line else "",
    )


KIND = Kind(find, blamed_for=("max_recompiles", "max_compiles", "max_compile_time", "max_idle", "max_memory"))
