"""missing_barrier: a loop without a barrier, unrolled into one graph.

:mod:`xlaprof.analysis.evidence.looping` finds the loop. Cost: the compile time of its graphs beyond that of one turn,
and of the graphs compiled again because of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from xlaprof.analysis.evidence.compilation import smaller
from xlaprof.analysis.evidence.counted import Known
from xlaprof.analysis.evidence.dynamic_size_ops import is_sized
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.evidence.looping import Unbarred, unbarred
from xlaprof.analysis.fold.tallies import CompileRecord
from xlaprof.analysis.model import Finding, Moment
from xlaprof.analysis.names import head
from xlaprof.analysis.places import cited, named
from xlaprof.analysis.principles import NAMED
from xlaprof.analysis.recompiles.extra import groups
from xlaprof.analysis.whatif import replay
from xlaprof.text.quantities import duration, plural, times
from xlaprof.text.strings import enumerated


def find(facts: Facts) -> Iterator[Finding]:
    """At most one finding."""
    found = facts.once(unbarred)
    if found is not None and not _is_told(facts, found):
        yield _finding(facts, found)


def _is_told(facts: Facts, found: Unbarred) -> bool:
    """Whether its turns are told as what is pending in the graph of the step that follows: the fix is the same."""
    pending = (group.first for group in facts.once(groups) if group.first.role == "pending")
    return any(head(found.loop) in facts.names.heads(one.stack) for one in pending)


def _finding(facts: Facts, found: Unbarred) -> Finding:
    run, loop, count = facts.run, found.loop, found.turns
    own = [record for record in run.compiles if found.is_cut_at(facts, record.stack)] or run.compiles
    largest: CompileRecord = max(own, key=lambda record: record.ops)
    unrolled = [record for record in own if record.ops * 2 > largest.ops]
    follow = [record for record in run.compiles if record.nth and record not in own and found.follows(facts, record)]
    follow += _once_more(run.compiles, unrolled)
    # what differs by a cause of its own, as by a batch that shrinks, does so in turns that a barrier ends, too
    caused = {(extra.record.program, extra.record.t) for group in facts.once(groups) for extra in group.extras}
    follow = [record for record in follow if (record.program, record.t) not in caused]
    cut = facts.place(largest.stack)
    site = run.sites[found.stack] if found.stack else None
    stack = site.loop if site else 0
    # The repeated line may lie deep in the model. Where no loop is known, the place is the line of the function from
    # which both it and the cut are called.
    place = loop if loop.line else facts.names.bracket(stack or largest.stack, largest.stack)[0]
    line = facts.place(stack)
    others = sorted({named(place) for place in (facts.place(one.stack) for one in unrolled) if place.at != cut.at})
    is_read = largest.trigger == "read"
    by = f"by the {'read' if is_read else 'barrier'} at {named(cut)}" if cut.line else cut.file or "by the first read"
    by += f" (and at {enumerated(others, NAMED)})" if others else ""
    mean = largest.ops // max(1, count)
    per_turn = 0 if site is None else min(site.loop_ops, mean) if count == site.loops else mean
    each = f", about {per_turn:,} for each" if per_turn else ""
    # one turn of the loop, and the operations outside it
    once = max(1 / max(1, count), 1 - (count - 1) * per_turn / max(1, largest.ops) if per_turn else 0.0)
    remains = smaller(once)
    took, again = (sum(record.dur for record in some) / 1e9 for some in (unrolled, follow))
    such = f"{duration(took)} to compile" + f" {len(unrolled)} such graphs" * (len(unrolled) > 1)
    such += f", of which {duration(took * remains)} remain for one turn"
    such += f"; {duration(again)} for graphs compiled again because of it" * bool(follow)
    sizes = (at for at, op in run.reads if is_sized(facts.text(op)) and head(loop) in facts.names.heads(at))
    selects = facts.place(next(sizes, 0))
    then = ": one small graph is then compiled once"
    if selects.line:
        then = (
            f", once all turns have the same sizes: values decide those of {cited(selects)}, and each turn would have "
            "a graph of its own"
        )
    return facts.finding(
        "missing_barrier",
        place,
        count=count,
        counted=Known((Moment(largest.t, largest.dur, count, f"one graph of {plural(largest.ops, 'operation')}"),)),
        cost_s=took * (1 - remains) + again,
        cut=replay.together((replay.compiles(unrolled, remains), replay.compiles(follow))),
        cause=(
            f"No barrier ends the graph inside the loop: {count} {found.noun} became one graph of {largest.ops:,} "
            f"operations{each}, compiled and run only {by} ({such})."
        ),
        advice=f"Call {facts.words.barrier} at the end of every turn of the loop{then}.",
        evidence=(f"{plural(len(own), 'graph')} compiled there, {duration(sum(r.dur for r in own) / 1e9)} in all",),
        confidence="high" if loop.line else "medium",
        rhythm=f"{times(count)} in one graph",
        also=(cut, line),
        remedy=f"{loop.code}\n    ...\n    {facts.words.barrier_code}" if loop.line else "",
    )


def _once_more(compiles: list[CompileRecord], unrolled: list[CompileRecord]) -> Iterator[CompileRecord]:
    """Graphs of barriers that hold the same turns again: something that a read had computed was held until then."""
    begins = [one.t for one in unrolled[1:]] + [compiles[-1].t + 1]
    for read, end in zip(unrolled, begins, strict=False):  # there are none where graphs hold no operation
        if read.trigger == "read" and 2 * read.again > read.ops:
            next_ones = (one for one in compiles if read.t < one.t < end and one.trigger != "read")
            yield from (one for one in islice(next_ones, 1) if one.ops >= read.again)


KIND = Kind(find, blamed_for=("max_recompiles", "max_compiles", "max_compile_time", "max_idle", "max_memory"))
