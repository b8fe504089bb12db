"""Functions of torch.compile that ranks of one program have not compiled alike, and who waited for whom meanwhile.

Ranks meet in collectives: while one compiles, the others stand at the next of them. What a rank was seen at is in its
recording; it is laid beside the compilations of the others on the clock that hosts share.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import median

import msgspec

from xlaprof.analysis.model import Place, RunInfo
from xlaprof.analysis.places import short
from xlaprof.analysis.principles import MOST, NAMED
from xlaprof.analysis.views.details import Details, Function, Stood
from xlaprof.text.quantities import duration, plural, times

_WORTH_S = 0.2  # a compilation that is shorter, and a wait, are not told
_OF_IT = 0.1  # of a compilation: a wait for it that is shorter is not told
_MOST = 200  # functions
#: calls that return once all ranks have come
_TOGETHER = re.compile(
    r"backward\(|\b(all_reduce|all_gather\w*|all_to_all\w*|reduce_scatter\w*|barrier)\(|\b(dist|distributed)\.\w+\("
)

_Member = tuple[RunInfo, int, Details]  # of a rank; the step it has come to
_Key = tuple[str, tuple[str, int]]  # of a function: name, file and line


class OfRank(msgspec.Struct, frozen=True):
    """A function on one rank."""

    rank: int
    graphs: int
    again: int  # how often it was compiled again
    parts: int  # into which a graph is split for DistributedDataParallel; 0: it is whole
    compile_s: float
    changes: tuple[str, ...]  # why it was compiled again, each once


class Alike(msgspec.Struct, frozen=True):
    """Ranks whose graphs of a function are the same."""

    ranks: tuple[int, ...]
    ops: tuple[int, ...]  # of each graph


class Waited(msgspec.Struct, frozen=True):
    """A rank stood at a line while another one compiled."""

    rank: int  # that stood there
    place: Place
    seconds: float
    of: int  # the rank that compiled, meanwhile
    compile_s: float  # all that it compiled of the function while the other stood there for part of the time
    together: bool  # the line returns once all ranks have come there


class Apart(msgspec.Struct, frozen=True):
    """A function that is not compiled alike on all ranks that have come as far."""

    name: str
    place: Place  # its definition
    step: int  # in which it was compiled again first; -1: before the first step, or never
    ranks: tuple[OfRank, ...]  # by number
    graphs: tuple[Alike, ...] = ()  # more than one where ranks with as many graphs have others; empty: alike, not known
    waits: tuple[Waited, ...] = ()  # the longest first

    @property
    def told(self) -> tuple[str, ...]:
        """All of it, in sentences."""
        return (*self._counts(), *self._graphs(), *map(_wait, self.waits))

    def _counts(self) -> Iterator[str]:
        by: dict[tuple[int, int, int, tuple[str, ...]], list[OfRank]] = defaultdict(list)
        for one in self.ranks:
            by[one.graphs, one.again, one.parts, one.changes].append(one)
        if len(by) < 2:
            return
        for (graphs, again, parts, changes), ranks in by.items():
            split = f" of {parts:,} parts{' each' if graphs > 1 else ''}" if parts else ""
            seconds = duration(median(one.compile_s for one in ranks))
            anew = f", compiled again {times(again)}" if again else ""
            why = f": {', '.join(changes[:NAMED])}" if changes else ""
            more = f" and {len(changes) - NAMED:,} more such changes" if len(changes) > NAMED else ""
            each = " on each" if len(ranks) > 1 else ""
            who = numbers([one.rank for one in ranks])
            yield f"{who}: {plural(graphs, 'graph')}{split}, {seconds}{each}{anew}{why}{more}"

    def _graphs(self) -> Iterator[str]:
        if self.graphs:
            each = (f"{_ops(one.ops)} on {numbers(one.ranks)}" for one in self.graphs[:NAMED])
            yield f"as many graphs, but not the same: {', '.join(each)}"


def _ops(ops: tuple[int, ...]) -> str:
    shown = ", ".join(f"{number:,}" for number in ops[:NAMED]) + (", ..." if len(ops) > NAMED else "")
    return f"{shown} operation{'s' * (ops != (1,))}"


def _wait(one: Waited) -> str:
    line = f"{one.place.code or 'a line'} ({short(one.place)})" if one.place.line else one.place.file
    stood = "waited for it" if one.together else "stood"
    seconds = f"rank {one.of} compiled it for {duration(one.compile_s)}; for {duration(one.seconds)} of that"
    return f"{seconds} rank {one.rank} {stood} at {line}"


def numbers(ranks: Sequence[int], most: int = 8) -> str:
    """ "ranks 0, 1, 3", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4 more" """
    shown = ", ".join(map(str, ranks[:most])) + (f" and {len(ranks) - most:,} more" if len(ranks) > most else "")
    return f"rank{'s' * (len(ranks) > 1)} {shown}"


def apart(members: Sequence[_Member]) -> list[Apart]:
    """The functions that differ, or that a rank waited for; the one that others waited for longest first."""
    if len(members) < 2:
        return []
    compiled: dict[_Key, dict[int, Function]] = defaultdict(dict)
    for run, _, details in members:
        for function in details.functions:
            compiled[function.name, function.place.at].setdefault(run.rank, function)
    found = []
    for having in compiled.values():
        one = next(iter(having.values()))
        step = min((again.step for function in having.values() for again in function.again), default=-1)
        come = [run.rank for run, at, _ in members if run.finished or at > step]
        rows = tuple(_row(rank, having.get(rank)) for rank in come)
        waits = tuple(_waits(having, members))
        alike = tuple(_alike({rank: having[rank] for rank in come if rank in having}))
        unlike = len({(row.graphs, row.again, row.parts) for row in rows}) > 1
        if unlike or alike or waits:
            found.append(Apart(one.name, one.place, step, rows, alike, waits))
    return sorted(found, key=_cost, reverse=True)[:_MOST]


def _cost(one: Apart) -> tuple[float, float]:
    """Seconds that ranks waited, and that one of them compiled."""
    return sum(wait.seconds for wait in one.waits), max((row.compile_s for row in one.ranks), default=0.0)


_NONE = OfRank(0, 0, 0, 0, 0.0, ())


def _row(rank: int, function: Function | None) -> OfRank:
    if function is None:
        return msgspec.structs.replace(_NONE, rank=rank)
    changes = tuple(dict.fromkeys(again.told for again in function.again if again.told))
    return OfRank(rank, function.graphs, len(function.again), function.parts, function.compile_s, changes)


def _alike(having: dict[int, Function]) -> Iterator[Alike]:
    """The ranks by their graphs, where all have as many and all graphs are known, but some are others."""
    if len({function.graphs for function in having.values()}) != 1 or not all(one.texts for one in having.values()):
        return
    by: dict[tuple[tuple[str, int], ...], list[int]] = defaultdict(list)
    for rank, function in having.items():
        by[function.texts].append(rank)
    if len(by) > 1:
        for texts, ranks in by.items():
            yield Alike(tuple(sorted(ranks)), tuple(ops for _, ops in texts))


def _waits(having: dict[int, Function], members: Sequence[_Member]) -> Iterator[Waited]:
    """Who stood where while a rank compiled, the longest first."""
    found = []
    for of, function in having.items():
        spans = [(start, end) for start, end in function.spans if end - start >= _WORTH_S]
        for run, _, details in members:
            waited: dict[Place, tuple[float, float]] = {}
            for start, end in spans if run.rank != of else ():
                for place, seconds in _stood(details.stood, start, end).items():
                    if seconds >= (_OF_IT if _together(place) else MOST) * (end - start):
                        before, compiled = waited.get(place, (0.0, 0.0))
                        waited[place] = before + seconds, compiled + end - start
            for place, (seconds, compiled) in waited.items():
                if seconds >= _WORTH_S:
                    found.append(Waited(run.rank, place, seconds, of, compiled, _together(place)))
    yield from sorted(found, key=lambda one: -one.seconds)[:NAMED]


def _stood(stood: Sequence[Stood], start: float, end: float) -> dict[Place, float]:
    """Seconds at each line between two moments. ``stood`` is in order of time."""
    found: dict[Place, float] = defaultdict(float)
    first = bisect_right(stood, start, key=lambda one: one.end_s)
    for one in islice(stood, first, None):
        if one.start_s >= end:
            break
        found[one.place] += min(end, one.end_s) - max(start, one.start_s)
    return found


def _together(place: Place) -> bool:
    """The line returns once all ranks have come there."""
    return _TOGETHER.search(place.code) is not None
