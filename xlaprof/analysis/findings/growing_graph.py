"""growing_graph: every graph is larger than the one before it. Cost: the time its compiles took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.evidence.looping import GROWTHS, grows, innermost, unbarred
from xlaprof.analysis.fold.tallies import CompileRecord, Site
from xlaprof.analysis.model import Finding, Moment, Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.places import named
from xlaprof.analysis.timeline.rhythm import Rhythm
from xlaprof.analysis.whatif import replay
from xlaprof.events import AnyEvent, Barrier, Compile
from xlaprof.text.quantities import duration, plural, times

_MOST = 0.8  # share of the compiles: the graph grows at a line that recorded more in so many of them
#: changes that make a recompilation: the graph has other inputs, not more work
_RECOMPILES = ("inputs", "shape", "outputs", "size")


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each barrier or read whose graphs grow, unless they do for want of a barrier that is reported."""
    loop = unbarred(facts)
    for stack, site in facts.run.sites.items():
        again = [record for record in facts.run.compiles if record.stack == stack and record.nth]
        recompiles = (record.change is not None and record.change.what in _RECOMPILES for record in again)
        if loop is not None and any(loop.follows(facts, record) for record in again):
            continue
        if grows(site) and not (again and all(recompiles)):
            yield _finding(facts, stack, site, again)


def _finding(facts: Facts, stack: int, site: Site, again: list[CompileRecord]) -> Finding:
    visits, before, after = site.longest_growth
    results = _results(facts, stack, before) if site.trigger == "read" else []
    grown, cost = (sum(record.dur for record in some) / 1e9 for some in (again, [*again, *results]))
    end = facts.names.place(stack)
    each = (after - before) / visits
    grew = (
        f"grew {times(visits)} in a row, from {before:,} to {plural(after, 'operation')} ({each:,.0f} more each time)"
    )
    if site.trigger == "read":
        place = innermost(facts.names, stack)
        line = f" at {named(end)}" if end.line else ""
        cause = (
            f"No barrier ends a step, so each read{line} also runs what all steps before it recorded: its graph {grew} "
            f"and is compiled anew ({duration(grown)} in all)."
        )
        if results:
            where = named(facts.names.place(results[0].stack))
            cause += (
                f" What is read of it in the end{f', at {where},' * bool(where)} took {duration(cost - grown)} more."
            )
        advice = f"Call {facts.words.barrier} at the end of every step, and read after it."
        remedy = f"{place.code}\n    ...\n    {facts.words.barrier_code}" if place.line else ""
    else:
        place = _line_that_grows(facts, again)
        here = f"ends at {named(end)}" if place.line else "ends here"
        more = f"; what it has more each time is recorded here ({place.acting.code})" if place.line else ""
        cause = (
            f"The graph that {here} {grew}, so each is compiled anew ({duration(cost)} in all): a step carries on what "
            f"the steps before it recorded{more}."
        )
        advice = (
            "Detach what is carried from step to step (.detach()) and end every step with a barrier, so that each "
            "graph starts from computed tensors."
        )
        remedy = "hidden = hidden.detach()  # before the next step"
    return facts.finding(
        "growing_graph",
        place if place.line else end,
        count=visits,
        counted=Growths(stack),
        cost_s=cost,
        cut=replay.compiles([*again, *results]),
        cause=cause,
        advice=advice,
        rhythm=Rhythm.of([record.step for record in again]).text(facts.outer_steps) if facts.step_count else "",
        also=(end,),
        remedy=remedy,
    )


def _results(facts: Facts, stack: int, before: int) -> list[CompileRecord]:
    """Graphs of other reads that hold what grew at ``stack`` from ``before`` operations on: no barrier came first."""
    run, since = facts.run, False
    programs = set()
    for cut, program in run.cuts:
        if cut in run.sites and run.sites[cut].trigger == "read":
            programs |= {program} if since and cut != stack else set()
            since = since or cut == stack
        else:
            since = False
    return [record for record in run.compiles if record.program in programs and record.ops > before]


def _line_that_grows(facts: Facts, again: list[CompileRecord]) -> Place:
    """The line at which each graph has more operations than the one before; NOWHERE where lines differ."""
    more = [record.change for record in again if record.change is not None and record.change.added]
    lines = Counter(facts.names.place(change.stack) for change in more if change.what == "operation")
    line, count = lines.most_common(1)[0] if lines else (NOWHERE, 0)
    return line if count >= GROWTHS and count >= _MOST * len(again) else NOWHERE


class Growths(msgspec.Struct, frozen=True):
    """The longest row of graphs that end at one place, each larger than the one before."""

    stack: int

    def among(self, events: Iterable[AnyEvent]) -> Iterator[Moment]:
        site = Site()
        row: list[Moment] = []
        longest: list[Moment] = []
        for event in events:
            if not isinstance(event, Barrier | Compile) or event.stack != self.stack:
                continue
            before = site.grew
            if isinstance(event, Barrier) and event.execution:
                site.ran((event.ops,))
            elif isinstance(event, Compile) and event.trigger == "read":
                site.grow(event.ops)
            if site.grew > before:
                row.append(Moment(event.t, event.dur, detail=plural(event.ops, "operation")))
                longest = row if len(row) > len(longest) else longest
            elif site.grew < before:
                row = []
        return iter(longest)


KIND = Kind(find, blamed_for=("max_recompiles", "max_compiles", "max_compile_time", "max_idle", "max_memory"))
