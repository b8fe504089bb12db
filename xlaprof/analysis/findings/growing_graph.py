"""growing_graph: every graph is larger than the one before it. Cost: the time its compiles took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence

import msgspec

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.evidence.looping import GROWTHS, growing, is_over_layers
from xlaprof.analysis.evidence.reading import SCALARS, advise_read
from xlaprof.analysis.evidence.reads import habits
from xlaprof.analysis.fold.tallies import CompileRecord, Site
from xlaprof.analysis.model import Finding, Moment, Place
from xlaprof.analysis.names import NOWHERE, head
from xlaprof.analysis.places import named
from xlaprof.analysis.principles import NEARLY_ALL
from xlaprof.analysis.recompiles.extra import groups
from xlaprof.analysis.timeline.rhythm import Rhythm
from xlaprof.analysis.uses import Use, read_of
from xlaprof.analysis.whatif import replay
from xlaprof.columns import events_of
from xlaprof.events import AnyEvent, Barrier, Compile
from xlaprof.text.quantities import duration, plural, times
from xlaprof.text.strings import enumerated


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each barrier whose graphs grow, and one for all reads of a loop whose graphs do.

    Where the same graphs had been compiled for another place, growing costs nothing here.
    """
    turns: dict[Place, list[int]] = {}
    for stack in (stack for stack, again in facts.once(growing).items() if again):
        loop = _turning(facts, stack) if facts.run.sites[stack].trigger == "read" else NOWHERE
        if loop.line:
            turns.setdefault(loop, []).append(stack)
        else:
            yield _finding(facts, [stack])
    for stacks in turns.values():
        yield _finding(facts, sorted(stacks, key=lambda stack: -facts.run.sites[stack].longest_growth[2]))


def _finding(facts: Facts, stacks: list[int]) -> Finding:
    stack, site = stacks[0], facts.run.sites[stacks[0]]
    visits, before, after = site.longest_growth
    again = [record for one in stacks for record in facts.once(growing)[one]]
    results = _results(facts, stacks, before) if site.trigger == "read" else []
    bears: dict[int, float] = {}  # moment of a compile -> the share that recompilations bear, as of another size in it
    for extra in (extra for group in facts.once(groups) for extra in group.extras):
        bears[extra.record.t] = min(1.0, bears.get(extra.record.t, 0.0) + extra.share)
    left = [(record, 1 - bears.get(record.t, 0.0)) for record in (*again, *results)]  # what no other cause bears
    grown, cost = (sum(one.dur * share for one, share in some) / 1e9 for some in (left[: len(again)], left))
    end = facts.place(stack)
    each = (after - before) / visits
    grew = (
        f"grew {times(visits)} in a row, from {before:,} to {plural(after, 'operation')} ({each:,.0f} more each time)"
    )
    if site.trigger == "read":
        place = _turning(facts, stack)
        lines = list(dict.fromkeys(filter(None, (named(facts.place(one)) for one in stacks))))
        reads = enumerated(lines, len(lines))
        line = f" at {reads}" if end.line else ""
        turn = f"turn of the loop at {named(place)}" if place.line else "step"
        cause = (
            f"No barrier ends a {turn}, so each read{line} also runs what all turns before it recorded: its graph "
            f"{grew} and is compiled anew ({duration(grown)} in all)."
        )
        if results:
            where = named(facts.place(results[0].stack))
            cause += (
                f" What is read of it in the end{f', at {where},' * bool(where)} took {duration(cost - grown)} more."
            )
        advice = f"Call {facts.words.barrier} at the end of every {turn}, and read after it."
        remedy = f"{place.code}\n    ...\n    {facts.words.barrier_code}" if place.line else ""
    else:
        place = _line_that_grows(facts, again)
        here = f"ends at {named(end)}" if place.line else "ends here"
        loop = _loop_inside(facts, stack, again)
        if loop.line:
            because = f"it holds all turns of the loop at {named(loop)}, which turns more often each time"
            advice = (
                f"Call {facts.words.barrier} at the end of every turn of that loop: each turn runs the same graph "
                "then, however many there are."
            )
            remedy = f"{loop.code}\n    ...\n    {facts.words.barrier_code}"
        else:
            because = "a step carries on what the steps before it recorded"
            if place.line:
                because += f"; what it has more each time is recorded here ({place.acting.code})"
            advice = (
                "Detach what is carried from step to step (.detach()) and end every step with a barrier, so that each "
                "graph starts from computed tensors."
            )
            remedy = "hidden = hidden.detach()  # before the next step"
        cause = f"The graph that {here} {grew}, so each is compiled anew ({duration(cost)} in all): {because}."
    return facts.finding(
        "growing_graph",
        place if place.line else end,
        count=visits,
        counted=Growths(stack),
        cost_s=cost,
        cut=replay.together(replay.compiles([record], 1 - share) for record, share in left),
        cause=cause,
        advice=advice,
        rhythm=facts.often(Rhythm.of([record.step for record in again])),
        also=map(facts.place, stacks),
        remedy=remedy,
        ended_by=_change(facts, stacks),
    )


def _change(facts: Facts, stacks: list[int]) -> Hashable | None:
    """The one change without which none of these reads would cut the graph, nor let it grow: of a setting, or that one
    line, which only keeps or shows the value, leaves it on the device until a barrier; None: there is none."""
    of: dict[int, Hashable] = {}
    for reads in facts.once(habits):
        line = reads.place.acting
        option = advise_read(reads.op, reads.via, line.code, 1).option
        takers = facts.names.takers(reads.stacks[0])
        use = read_of(line.code, scalar=reads.op in SCALARS, takers=takers, func=line.func).use
        kept = ("decides", line.at) if use >= Use.LOGS and reads.barrier else None
        of |= dict.fromkeys(reads.stacks, option or kept)
    changes = {of.get(stack) for stack in stacks}
    return changes.pop() if len(changes) == 1 else None


def _turning(facts: Facts, stack: int) -> Place:
    """The loop that a read is repeated by: what the head of a ``for`` reads is read once, before its turns; and of
    several loops it is the one that other reads grow by as well."""
    names, line = facts.names, facts.place(stack).acting
    around = [one for one in names.loops(stack) if one.acting.at != line.at or not line.code.startswith("for ")]
    others = [names.heads(other) for other in facts.once(growing) if other != stack]
    shared = (one for one in around if any(head(one) in other for other in others))
    return next(shared, around[0] if around else NOWHERE)


def _results(facts: Facts, stacks: list[int], before: int) -> list[CompileRecord]:
    """Graphs of other reads that hold what grew at ``stacks`` from ``before`` operations on: no barrier came first."""
    run, since = facts.run, False
    programs = set()
    for cut, program in run.cuts:
        is_read = cut in run.sites and run.sites[cut].trigger == "read"
        if since and is_read and cut not in facts.once(growing):
            programs.add(program)
        since = is_read and (since or cut in stacks)
    return [record for record in run.compiles if record.program in programs and record.ops > before]


def _line_that_grows(facts: Facts, again: list[CompileRecord]) -> Place:
    """The line at which each graph has more operations than the one before; NOWHERE where lines differ."""
    more = [record.change for record in again if record.change is not None and record.change.added]
    lines = Counter(facts.place(change.stack) for change in more if change.what == "operation")
    line, count = lines.most_common(1)[0] if lines else (NOWHERE, 0)
    return line if count >= GROWTHS and count >= NEARLY_ALL * len(again) else NOWHERE


def _loop_inside(facts: Facts, barrier: int, again: list[CompileRecord]) -> Place:
    """The loop in each turn of the barrier's that records what each graph has more; NOWHERE: there is none."""
    around = facts.names.heads(barrier)
    more = [record.change.stack for record in again if record.change is not None and record.change.added]
    loops = Counter(loop for stack in more for loop in facts.names.loops(stack)[:1] if head(loop) not in around)
    loop, count = loops.most_common(1)[0] if loops and around else (NOWHERE, 0)
    return loop if count >= GROWTHS and count >= NEARLY_ALL * len(more) and not is_over_layers(loop) else NOWHERE


class Growths(msgspec.Struct, frozen=True):
    """The longest row of graphs that end at one place, each larger than the one before."""

    stack: int

    def among(self, batches: Iterable[Sequence[AnyEvent]]) -> Iterator[Moment]:
        site = Site()
        row: list[Moment] = []
        longest: list[Moment] = []
        for event in events_of(batches, {Barrier, Compile}):
            if event.stack != self.stack:
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
