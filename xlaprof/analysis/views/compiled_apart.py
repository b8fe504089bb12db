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
from xlaprof.events.dynamo import SETTING
from xlaprof.text.quantities import duration, plural, times
from xlaprof.text.strings import enumerated

_WORTH_S = 0.2  # a compilation that is shorter, and a wait, are not told
_OF_IT = 0.1  # of a compilation: a wait for it that is shorter is not told
_MOST = 200  # functions
#: calls that return once all ranks have come
_TOGETHER = re.compile(
    r"backward\(|\b(all_reduce|all_gather\w*|all_to_all\w*|reduce_scatter\w*|barrier)\(|\b(dist|distributed)\.\w+\("
)

_SETTING = re.compile(SETTING + r"\[(.+)\]")
#: parts of a key, in words
_PARTS = {
    "gm": "the graph that AOTAutograd made",
    "example_inputs": "the inputs",
    "system_info": "the machine (system_info)",
}

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


class OtherKey(msgspec.Struct, frozen=True):
    """A graph that is the same on ranks, but not its key in inductor's cache."""

    ranks: tuple[tuple[int, ...], ...]  # those that have one key, together
    parts: tuple[str, ...]  # of the key, in which they differ: "inductor_config[max_autotune]", "system_info"

    @property
    def told(self) -> str:
        """All of it, in a sentence."""
        ranks, parts = [numbers(one) for one in self.ranks], [*map(_part, self.parts)]
        return (
            f"the same graph has other keys in inductor's cache on {enumerated(ranks, NAMED)}, "
            f"so each compiles it for itself: they differ in {enumerated(parts, NAMED)}"
        )


def _part(name: str) -> str:
    """ "torch._inductor.config.max_autotune" """
    setting = _SETTING.fullmatch(name)
    return f"torch._inductor.config.{setting[1]}" if setting else _PARTS.get(name, name)


class Waited(msgspec.Struct, frozen=True):
    """Ranks stood at a line while another one compiled."""

    ranks: tuple[int, ...]  # that stood there
    place: Place
    seconds: float  # the median of theirs
    of: int  # the rank that compiled, meanwhile
    compile_s: float  # all that it compiled of the function while they stood there for part of the time
    together: bool  # the line returns once all ranks have come there


class Unended(msgspec.Struct, frozen=True):
    """A rank compiles, and others wait for it: as far as their recordings go."""

    rank: int
    place: Place  # that called what is compiled
    seconds: float  # so far
    waits: tuple[Waited, ...]  # the longest first

    @property
    def told(self) -> str:
        """All of it, in a sentence."""
        stood = "; ".join(
            f"{_who(one)} at {_line(one.place)}, for {duration(one.seconds)} so far" for one in self.waits
        )
        return (
            f"rank {self.rank} still compiles for {_line(self.place)}, {duration(self.seconds)} after it began; {stood}"
        )


class Apart(msgspec.Struct, frozen=True):
    """A function that is not compiled alike on all ranks that have come as far."""

    name: str
    place: Place  # its definition
    step: int  # in which it was compiled again first; -1: before the first step, or never
    ranks: tuple[OfRank, ...]  # by number
    graphs: tuple[
        Alike, ...
    ] = ()  # where as many are not the same, or none is on all; empty: nothing like that is known
    waits: tuple[Waited, ...] = ()  # the longest first
    keys: OtherKey | None = None  # of the first graph whose ranks have several

    @property
    def told(self) -> tuple[str, ...]:
        """All of it, in sentences."""
        keys = (self.keys.told,) if self.keys is not None else ()
        return (*self._counts(), *self._graphs(), *keys, *map(_wait, self.waits))

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
            as_many = len({row.graphs for row in self.ranks}) == 1
            what = "as many graphs, but not the same" if as_many else "no graph is the same on all"
            yield f"{what}: {', '.join(each)}"


def _ops(ops: tuple[int, ...]) -> str:
    shown = ", ".join(f"{number:,}" for number in ops[:NAMED]) + (", ..." if len(ops) > NAMED else "")
    return f"{shown} operation{'s' * (ops != (1,))}"


def _wait(one: Waited) -> str:
    stood = "waited for it" if one.together else "stood"
    seconds = f"rank {one.of} compiled it for {duration(one.compile_s)}; for {duration(one.seconds)} of that"
    return f"{seconds} {numbers(one.ranks)} {stood} at {_line(one.place)}"


def _who(one: Waited) -> str:
    """ "ranks 0, 2 wait for it", "rank 0 stands" """
    several = len(one.ranks) > 1
    verb = ("wait for it" if several else "waits for it") if one.together else ("stand" if several else "stands")
    return f"{numbers(one.ranks)} {verb}"


def _line(place: Place) -> str:
    if not place.line:
        return place.file or "a line that is not known"
    return f"{place.code} ({short(place)})" if place.code else short(place)


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
        waited = (wait for rank, function in having.items() for wait in _waits(rank, function.spans, members))
        waits = tuple(sorted(waited, key=lambda one: -one.seconds)[:NAMED])
        alike = tuple(_alike({rank: having[rank] for rank in come if rank in having}))
        keys = _keys(having)
        unlike = len({(row.graphs, row.again, row.parts) for row in rows}) > 1
        if unlike or alike or waits or keys is not None:
            found.append(Apart(one.name, one.place, step, rows, alike, waits, keys))
    return sorted(found, key=_cost, reverse=True)[:_MOST]


def _cost(one: Apart) -> tuple[float, float]:
    """Seconds that ranks waited, and that one of them compiled."""
    return sum(wait.seconds * len(wait.ranks) for wait in one.waits), max(
        (row.compile_s for row in one.ranks), default=0.0
    )


_NONE = OfRank(0, 0, 0, 0, 0.0, ())


def _row(rank: int, function: Function | None) -> OfRank:
    if function is None:
        return msgspec.structs.replace(_NONE, rank=rank)
    changes = tuple(dict.fromkeys(again.told for again in function.again if again.told))
    return OfRank(rank, function.graphs, len(function.again), function.parts, function.compile_s, changes)


def _alike(having: dict[int, Function]) -> Iterator[Alike]:
    """The ranks by their graphs, where all graphs are known and some are others: of as many, or all of them."""
    texts = {rank: function.texts for rank, function in having.items()}
    if not texts or not all(texts.values()):
        return
    as_many = len({function.graphs for function in having.values()}) == 1
    if not as_many and frozenset.intersection(*map(frozenset, texts.values())):
        return  # some have more of them, which is told
    by: dict[tuple[tuple[str, int], ...], list[int]] = defaultdict(list)
    for rank, graphs in texts.items():
        by[graphs].append(rank)
    if len(by) > 1:
        for graphs, ranks in by.items():
            yield Alike(tuple(sorted(ranks)), tuple(ops for _, ops in graphs))


def _keys(having: dict[int, Function]) -> OtherKey | None:
    """The first graph of which ranks have different keys."""
    by_graph: dict[str, dict[int, dict[str, str]]] = defaultdict(dict)
    for rank, function in having.items():
        for graph, key in function.keys:
            by_graph[graph][rank] = {**key.parts, **key.settings}
    for keys in by_graph.values():
        names = dict.fromkeys(name for key in keys.values() for name in key)
        other = tuple(name for name in names if len({key.get(name) for key in keys.values()}) > 1)
        if other:
            ranks: dict[tuple[str | None, ...], list[int]] = defaultdict(list)
            for rank, made_of in sorted(keys.items()):
                ranks[tuple(map(made_of.get, other))].append(rank)
            return OtherKey(tuple(map(tuple, ranks.values())), other)
    return None


def unended(members: Sequence[_Member]) -> list[Unended]:
    """The compilations that have not ended, where others wait for them, the longest first."""
    now = max((end for _, _, details in members for end in _ends(details)), default=0.0)
    found = []
    for run, _, details in members:
        if details.compiling is not None and not run.finished:
            start = details.compiling.start_s
            waits = _waits(run.rank, [(start, max(start, now))], members)
            if waits:
                found.append(Unended(run.rank, details.compiling.place, now - start, tuple(waits[:NAMED])))
    return sorted(found, key=lambda one: -one.seconds)


def _ends(details: Details) -> Iterator[float]:
    """Last moments of what is known of a rank."""
    yield from (one.end_s for one in details.stood[-1:])
    if details.compiling is not None:
        yield details.compiling.end_s


def _waits(of: int, spans: Sequence[tuple[float, float]], members: Sequence[_Member]) -> list[Waited]:
    """Who stood where while the rank ``of`` compiled, the longest first."""
    waited: dict[Place, dict[int, tuple[float, float]]] = defaultdict(dict)
    spans = [(start, end) for start, end in spans if end - start >= _WORTH_S]
    for run, _, details in members:
        for start, end in spans if run.rank != of else ():
            for place, seconds in _stood(details.stood, start, end).items():
                if seconds >= (_OF_IT if _together(place) else MOST) * (end - start):
                    before, compiled = waited[place].get(run.rank, (0.0, 0.0))
                    waited[place][run.rank] = before + seconds, compiled + end - start
    found = []
    for place, by in waited.items():
        long = {rank: one for rank, one in by.items() if one[0] >= _WORTH_S}
        if long:
            seconds, compiled = median(one[0] for one in long.values()), max(one[1] for one in long.values())
            found.append(Waited(tuple(sorted(long)), place, seconds, of, compiled, _together(place)))
    return sorted(found, key=lambda one: -one.seconds)


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
