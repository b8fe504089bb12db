"""The causes of each new graph of a barrier, weighed against all graphs that the barrier had.

A graph is a set of *values*: with the penalty term or without, of 37 rows or of 12. Things that always change together
are one. A value that no earlier graph had is the cause of a new one. Where each value was there before, the graph is a
new *combination* of them: the causes are all things in which it differs from the graphs nearest to it, for without any
of them it would be one of those. An optimizer's second step, which has a state to add to, needs a graph of its own
whatever else is new in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from operator import attrgetter
from typing import NamedTuple

import msgspec

from xlaprof.analysis.diagnosis import Key, Part, Value
from xlaprof.analysis.fold.tallies import CompileRecord
from xlaprof.analysis.principles import KEPT
from xlaprof.analysis.sums import grouped
from xlaprof.events import Change


def comes_back(records: Iterable[CompileRecord], last: Mapping[int, int]) -> set[tuple[int, int]]:
    """Programs and moments of graphs after which one ran that still had the value whose change made them.

    ``last``: by program, when it ran last; of a barrier's graphs those that ran last of all are looked at. An
    optimizer's state does not come back: it is made again, if at all.
    """
    found = set()
    for graphs in grouped(records, _barrier).values():
        variants = _Variants(graphs)
        recent = nlargest(KEPT, range(len(graphs)), key=lambda at: last.get(graphs[at].program, 0))
        for at, record in enumerate(graphs):
            if any(last.get(one, 0) > record.t + record.dur for one in variants.others(at, recent)):
                found.add((record.program, record.t))
    return found


class Causes(NamedTuple):
    """Why a graph had to be compiled. Several changes bear it together; none: it is the first."""

    changes: tuple[Change, ...] = ()
    either: bool = False  # without any one of them it would be a graph that was there before


def causes(records: Iterable[CompileRecord]) -> dict[tuple[int, int], Causes]:
    """By program and moment: why it had to be compiled.

    Where an optimizer's state comes first, the others bear nothing.
    """
    return {
        (record.program, record.t): found
        for graphs in grouped(records, _barrier).values()
        for record, found in zip(graphs, _Variants(graphs).causes(), strict=True)
    }


_barrier: Callable[[CompileRecord], int] = attrgetter("stack")


class _Variants:
    """The graphs of one barrier, in the order in which they were compiled."""

    def __init__(self, records: Sequence[CompileRecord]) -> None:
        self._records = records
        self._first: dict[Key, Value] = {}  # values in the first graph
        graphs: dict[int, dict[Key, Value]] = {}  # by program: what is not as in the first
        for record in records:
            known = graphs.get(record.change.against, {}) if record.change is not None else {}
            for part in record.parts:
                self._first.setdefault(part.key, known.get(part.key, part.old))
            graphs[record.program] = {**known, **{part.key: part.new for part in record.parts}}
        self._graphs = [graphs[record.program] for record in records]
        # what is brought to the device stands for the size that is selected of it, and that for the shapes that follow;
        # a condition of the program's stands for a path that it decides on
        parts = [part for record in records for part in record.parts]
        brought = {part.key for part in parts if part.change.moved}
        paths = [part for part in parts if part.change.what == "operation" and not part.change.role]
        decided = {part.key for part in paths if part.change.condition}
        plain = {part.key for part in paths} - decided
        keys = sorted(self._first, key=lambda key: (key not in brought, key[0] != "size"))
        leads: dict[tuple[int, ...], Key] = {}
        for key in keys:
            lead = leads.setdefault(self._column(key), key)
            if lead in plain and key in decided:
                leads[self._column(key)] = key
        self._thing = {key: leads[self._column(key)] for key in keys}

    def _column(self, key: Key) -> tuple[int, ...]:
        """Its value in every graph, numbered in the order of appearance."""
        values: dict[Value, int] = {}
        column = (graph.get(key, self._first[key]) for graph in self._graphs)
        return tuple(values.setdefault(value, len(values)) for value in column)

    def others(self, at: int, among: Iterable[int]) -> Iterator[int]:
        """Programs, before or after a graph, that have the value from before of what changed first in it."""
        record = self._records[at]
        if record.change is None:
            return
        yield from (record.change.against,) if record.change.against else record.before
        for part in [part for part in record.parts if part.change.role != "state"][:1]:
            for one in among:
                if self._graphs[one].get(part.key, self._first[part.key]) == part.old:
                    yield self._records[one].program

    def causes(self) -> list[Causes]:
        """Of each graph."""
        seen = {(key, value) for key, value in self._first.items()}
        came: dict[Key, Change] = {}  # how each thing changed first
        found = []
        for at, record in enumerate(self._records):
            parts = [part for part in record.parts if self._thing[part.key] == part.key]
            novel = [part for part in parts if (part.key, part.new) not in seen]
            seen.update((part.key, part.new) for part in record.parts)
            for part in novel:
                came.setdefault(part.key, part.change)
            found.append(self._of(record, novel, at, came))
        return found

    def _of(self, record: CompileRecord, novel: list[Part], at: int, came: dict[Key, Change]) -> Causes:
        state = [part for part in novel if part.change.role == "state"]
        novel = [part for part in novel if part not in state]
        kept = tuple(part.change for part in state if part.new[0] == "kept")
        if kept or (state and not novel):
            return Causes((state[0].change, *self._named(novel)))
        if novel:
            return Causes(self._named(novel))
        if record.change is None or not record.parts:
            return Causes((record.change,) if record.change is not None else ())
        nearest = self._nearest(at)
        combined = [self._now(came[key], key, at, base) for base, keys in nearest for key in keys if key in came]
        if len(combined) < 2:
            return Causes((record.change,))
        # an optimizer makes its state once: a combination with it is the others'
        found = tuple(one for one in combined if one.role != "state") or tuple(combined)
        return Causes(found, either=len(found) > 1 and all(len(keys) == 1 for _, keys in nearest))

    def _named(self, novel: list[Part]) -> tuple[Change, ...]:
        if novel and novel[0].change.what != "operation":
            # a tensor of another shape can cause another path, but how much a mask selects is a cause of its own; and a
            # number that is special, no other number of passes
            first, *others = (part.change for part in novel)
            passes = "loop" if first.what == "scalar" else None
            return (first, *(one for one in others if one.what == "size" or one.role == passes))
        paths = [part.change for part in novel if part.change.what == "operation"]
        # what a condition decides on brings, or takes, operations elsewhere, too
        return tuple(change for change in paths if change.condition) or tuple(paths)

    def _nearest(self, at: int) -> list[tuple[int, list[Key]]]:
        """Of graphs before, the nearest, and the things in which a graph differs from them: each once, from the latest
        of these."""
        earlier = range(max(0, at - KEPT), at)
        differing = {base: self._differing(self._graphs[at], self._graphs[base]) for base in earlier}
        least = min((len(keys) for keys in differing.values() if keys), default=0)
        latest = {key: base for base, keys in differing.items() if len(keys) == least for key in keys}
        return [(base, [key for key in latest if latest[key] == base]) for base in dict.fromkeys(latest.values())]

    def _now(self, change: Change, key: Key, at: int, base: int) -> Change:
        """A change as it first came, with the values of two graphs."""
        if change.what == "operation":
            return change
        (old, _), (new, _) = (self._graphs[one].get(key, self._first[key]) for one in (base, at))
        return msgspec.structs.replace(change, old=old, new=new, against=self._records[base].program)

    def _differing(self, one: dict[Key, Value], other: dict[Key, Value]) -> dict[Key, None]:
        different = (
            key for key in (*one, *other) if one.get(key, self._first[key]) != other.get(key, self._first[key])
        )
        return dict.fromkeys(self._thing[key] for key in different)
