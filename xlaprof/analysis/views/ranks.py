"""Ranks of one program beside each other: which one the others wait for, with what, and where their programs differ.

A rank is late by the time that its host works by itself: ranks that meet in a collective all take as long as the
slowest, but only the others spend it waiting, in a read or at the hand-over of the next program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from xlaprof.analysis.model import Finding, Place, Report
from xlaprof.analysis.views.compiled_apart import Apart, Unended, apart, unended
from xlaprof.analysis.views.course import Course
from xlaprof.analysis.views.details import Details, changed
from xlaprof.text.parts import PARTS
from xlaprof.text.quantities import plural

BETWEEN = "between steps"
_WAITS = ("dispatch", "transfer wait")  # parts of a step in which the host waits, for its device or for other ranks
_WORTH_NAMING = 0.1  # of a step: a rank that is later by less is not called slow
_OF_THE_LAG = 0.1  # a part that makes up less of it is not named
_PARTS = 3  # that are named
_COMPARED = 0.5  # a rank is compared if it has so much of the steps of the one that has most
_MOST = 200  # divergences


class Member(msgspec.Struct, frozen=True):
    """One rank, analysed by itself."""

    path: str
    report: Report
    course: Course = Course()
    details: Details = Details()


class Rank(msgspec.Struct, frozen=True):
    """A rank in the steps that all have. Seconds of a step on average; 0 where it is not compared."""

    rank: int
    path: str
    compared: bool = False
    cycle_s: float = 0.0  # from the begin of a step to the begin of the next
    own_s: float = 0.0  # of it: the host works, by itself
    wait_s: float = 0.0  # of it: the host waits for its device, or for other ranks
    busy_s: float = 0.0  # of it, within steps: the device works, or waits in a collective
    parts: tuple[tuple[str, float], ...] = ()  # of own_s, the largest first


class Slow(msgspec.Struct, frozen=True):
    """The rank that is later than the others, and why."""

    rank: int
    path: str
    lag_s: float  # a step is later by this than the median of the other ranks
    share: float  # of its step
    waited_for: bool  # the others wait for it; else each goes its own way
    parts: tuple[tuple[str, float, float], ...] = ()  # name, seconds here, seconds on the others: what makes up the lag
    finding: Finding | None = None  # of this rank: what costs it most beyond what it costs the others
    beyond_s: float = 0.0  # over the run


class Divergence(msgspec.Struct, frozen=True):
    """A program that some ranks have compiled and others, that have come as far, have not."""

    what: str  # "graph 3, 12 operations"
    ranks: tuple[int, ...]  # that compiled it
    others: tuple[int, ...]  # that did not
    step: int  # in which the first of them did; -1: before the first
    compile_s: float  # of the one that took longest
    place: Place  # the line that needed it
    change: str = ""  # how it differs from the closest one before on that rank


class Ranks(msgspec.Struct, frozen=True):
    """All ranks whose logs there are, by number."""

    world: int = 0
    ranks: tuple[Rank, ...] = ()
    missing: tuple[int, ...] = ()  # have no log
    first: int = -1  # the steps that are compared, by number; -1: none
    last: int = -1
    slow: Slow | None = None  # None: none is worth naming
    divergences: tuple[Divergence, ...] = ()
    functions: tuple[Apart, ...] = ()  # of torch.compile, that are not the same on all
    unended: tuple[Unended, ...] = ()  # compilations that go on, and that others wait for


class Shared(msgspec.Struct, frozen=True):
    """A finding, on the rank where its fix gives back most, and what it costs and gives back on each that has it."""

    finding: Finding
    rank: int  # that ``finding`` is of
    by: tuple[tuple[int, float, float], ...]  # rank, cost_s, gain_s; by rank


def shared(reports: Sequence[Report]) -> tuple[Shared, ...]:
    """The findings of all ranks, each once, the one whose fix gives back most on a rank first."""
    found: dict[str, list[tuple[int, Finding]]] = defaultdict(list)
    for report in sorted(reports, key=lambda one: one.run.rank):
        for one in report.findings:
            found[one.id].append((report.run.rank, one))
    rows = []
    for having in found.values():
        rank, finding = max(having, key=lambda one: (one[1].gain_s, one[1].cost_s))
        rows.append(Shared(finding, rank, tuple((number, one.cost_s, one.gain_s) for number, one in having)))
    return tuple(sorted(rows, key=lambda row: (-row.finding.gain_s, -row.finding.cost_s)))


def ranks(members: Sequence[Member]) -> Ranks:
    """The ranks of one program, each analysed as far as its log goes."""
    members = sorted(members, key=lambda one: (one.report.run.rank, one.path))
    world = max((one.report.run.world for one in members), default=0)
    there = {one.report.run.rank for one in members}
    counts = [sum(bar.count for bar in one.course.bars) for one in members]
    most = max(counts, default=0)
    enough = [one for one, count in zip(members, counts, strict=True) if count >= max(2, most * _COMPARED)]
    first = max((one.course.bars[0].first for one in enough), default=-1)
    last = min((one.course.bars[-1].last for one in enough), default=-1)
    rows = [_rank(one, first, last) if one in enough else _unlike(one) for one in members]
    compared = [(row, one) for row, one in zip(rows, members, strict=True) if row.compared]
    known = [(one.report.run, one.report.activity.step, one.details) for one in members]
    return Ranks(
        world=world,
        ranks=tuple(rows),
        missing=tuple(number for number in range(world) if number not in there),
        first=first if compared else -1,
        last=last if compared else -1,
        slow=_slow(compared) if len(compared) > 1 else None,
        divergences=tuple(_divergences(members)) if len(members) > 1 else (),
        functions=tuple(apart(known)),
        unended=tuple(unended(known)),
    )


def _unlike(member: Member) -> Rank:
    return Rank(member.report.run.rank, member.path)


def _rank(member: Member, first: int, last: int) -> Rank:
    bars = [bar for bar in member.course.bars if first <= bar.first and bar.last <= last]
    steps = sum(bar.count for bar in bars)
    before_last = steps - bars[-1].count if bars else 0
    if before_last < 1:
        return _unlike(member)
    within = sum(bar.total_s for bar in bars) / steps
    # A step's begin is known, a pause after the last one is not: the cycle is that of the steps before the last.
    cycle = max(within, (bars[-1].start_s - bars[0].start_s) / before_last)
    sums = ((name, sum(bar.parts[number] for bar in bars)) for number, (name, _) in enumerate(PARTS))
    parts = {name: seconds / steps for name, seconds in sums if seconds > 0}
    wait = sum(parts.pop(name, 0.0) for name in _WAITS)
    if cycle - within > 0:
        parts[BETWEEN] = cycle - within
    return Rank(
        rank=member.report.run.rank,
        path=member.path,
        compared=True,
        cycle_s=cycle,
        own_s=cycle - wait,
        wait_s=wait,
        busy_s=sum(bar.busy_s for bar in bars) / steps,
        parts=tuple(sorted(parts.items(), key=lambda one: -one[1])),
    )


def _slow(compared: Sequence[tuple[Rank, Member]]) -> Slow | None:
    """The rank that works longest by itself, if that does not make its own steps longer: then all have to wait for it.
    Else the one whose steps take longest."""
    rows = [row for row, _ in compared]
    most = max(rows, key=lambda row: row.own_s)
    others = [row for row in rows if row is not most]
    lag = most.own_s - median(row.own_s for row in others)
    waited_for = lag > 0 and most.cycle_s - median(row.cycle_s for row in others) < lag / 2
    longest = max(rows, key=lambda row: row.cycle_s)
    behind = [row for row in rows if row is not longest]
    longer = longest.cycle_s - median(row.cycle_s for row in behind)
    if not waited_for or longer > lag:
        most, others, lag, waited_for = longest, behind, longer, False
    cycle = median(row.cycle_s for row in rows)
    if cycle <= 0 or lag < _WORTH_NAMING * cycle:
        return None
    member = next(one for row, one in compared if row is most)
    finding, beyond = _finding(member, [one for _, one in compared if one is not member])
    steps = max(1, sum(bar.count for bar in member.course.bars))
    named = finding is not None and beyond >= _OF_THE_LAG * lag * steps
    return Slow(
        rank=most.rank,
        path=most.path,
        lag_s=lag,
        share=lag / most.cycle_s,
        waited_for=waited_for,
        parts=_excess(most, others, lag, waits=not waited_for),
        finding=finding if named else None,
        beyond_s=beyond if named else 0.0,
    )


def _excess(most: Rank, others: Sequence[Rank], lag: float, waits: bool) -> tuple[tuple[str, float, float], ...]:
    def all_parts(row: Rank) -> dict[str, float]:
        return dict(row.parts) | ({"waiting for the device": row.wait_s} if waits else {})

    theirs = [all_parts(row) for row in others]
    found = [(name, seconds, median(one.get(name, 0.0) for one in theirs)) for name, seconds in all_parts(most).items()]
    found.sort(key=lambda one: one[2] - one[1])
    return tuple(one for one in found[:_PARTS] if one[1] - one[2] >= _OF_THE_LAG * lag)


def _finding(member: Member, others: Sequence[Member]) -> tuple[Finding | None, float]:
    """The finding that costs a rank most beyond what the same one costs the others, and by how much."""
    costs: dict[str, list[float]] = defaultdict(list)
    for other in others:
        for one in other.report.findings:
            costs[one.id].append(one.cost_s)
    best, beyond = None, 0.0
    for one in member.report.findings:
        theirs = costs[one.id] + [0.0] * (len(others) - len(costs[one.id]))
        more = one.cost_s - median(theirs)
        if more > beyond:
            best, beyond = one, more
    return best, beyond


class _Compiled(msgspec.Struct, frozen=True):
    """A program of one rank; ``key`` is the same for the same program of another."""

    key: tuple[object, ...]
    what: str
    step: int
    compile_s: float
    place: Place
    change: str


def _divergences(members: Sequence[Member]) -> Iterator[Divergence]:
    compiled: dict[tuple[object, ...], dict[int, _Compiled]] = defaultdict(dict)
    for member in members:
        for one in _programs(member.details):
            compiled[one.key].setdefault(member.report.run.rank, one)
    found = []
    for having in compiled.values():
        step = min(one.step for one in having.values())
        others = tuple(
            one.report.run.rank
            for one in members
            if one.report.run.rank not in having and (one.report.run.finished or one.report.activity.step > step)
        )
        if others:
            one = max(having.values(), key=lambda one: one.compile_s)
            who = tuple(sorted(having)), others
            found.append(Divergence(one.what, *who, step, one.compile_s, one.place, one.change))
    yield from sorted(found, key=lambda one: (one.step, -one.compile_s))[:_MOST]


def _programs(details: Details) -> Iterator[_Compiled]:
    for graph in details.graphs:
        change = changed(graph.what, graph.subject or "the graph", graph.old, graph.new) if graph.what else ""
        what = f"graph {graph.program}, {plural(graph.ops, 'operation')}"
        yield _Compiled(("xla", graph.hash), what, graph.step, graph.compile_s, graph.place, change)
    for again in details.jax:
        key = ("jax", again.name, again.place.at, again.changes)
        yield _Compiled(key, f"{again.name} (JAX)", again.step, again.compile_s, again.place, again.told)
