"""The events of a batch by kind: where they are in it, and their numbers, a column for each field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np

from xlaprof import events as ev
from xlaprof.events.base import APART

from .numbers import Column, Flags

#: Kind of event -> the fields that are counted. Lengths come after ``t``.
FIELDS: dict[type, tuple[str, ...]] = {
    ev.Scope: ("t", "dur", "name", "depth", "tid", "stack"),
    ev.Step: ("t", "dur", "name", "num", "tid"),
    ev.Hole: ("t", "dur", "before", "after", "tid"),
    ev.Barrier: ("t", "dur", "stack", "ops", "tracing", "execution", "loops", "tid"),
    ev.Execute: ("t", "start", "end", "enqueue", "program", "stack", "device", "calls"),
    ev.TransferToDevice: ("t", "dur", "bytes", "stack", "tid", "calls", "again", "what"),
    ev.TransferFromDevice: ("t", "dur", "wait", "bytes", "op", "stack", "tid", "via", "late"),
    ev.DeviceWait: ("t", "dur", "stack", "tid"),
    ev.DataWait: ("t", "dur", "stack", "tid"),
    ev.Gc: ("t", "dur", "stack", "tid"),
    ev.Live: (),
    ev.StepDigest: ("t", "dur", "name", "num", "tid", "executions", "busy", "tracing", "barriers"),
}
#: What texts, and whether there is a table, say of an event: columns of 0 and 1
FLAGS: dict[type, dict[str, Callable[[Any], bool]]] = {
    ev.Scope: {"failed": lambda event: bool(event.error)},
    ev.Barrier: {"for_read": lambda event: event.trigger == "read"},
    ev.Execute: {
        "for_read": lambda event: event.trigger == "read",
        "apart": lambda event: event.trigger in APART,
    },
    ev.StepDigest: {"with_fallbacks": lambda event: bool(event.fallbacks)},
}
#: Tables by id, of triples
TABLES: dict[type, tuple[str, ...]] = {ev.StepDigest: ("scopes", "reads")}
#: Kinds without numbers that are counted, and which may be counted before or after the events around them
ANYTIME = (ev.Text, ev.Stack, ev.Batches, ev.Thread, ev.Evicted, ev.Sample, ev.Look, ev.Counters)

CODES: dict[type, int] = {kind: code for code, kind in enumerate([*FIELDS, *ANYTIME], 1)}  # 0: neither


class Alike(NamedTuple):
    """Tables with the same keys."""

    keys: tuple[str, ...]
    those: Column  # numbers of their events, ascending
    numbers: Column  # of each event a row: the triples, key by key


class Kind(msgspec.Struct):
    """Events of one kind."""

    batch: Sequence[Any]
    at: Column  # positions in the batch, ascending
    columns: dict[str, Column]
    tables: Mapping[str, Sequence[Alike]] = {}

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, field: str) -> Column:
        return self.columns[field]

    @property
    def end(self) -> Column:
        """The ends of intervals."""
        return self.columns["t"] + self.columns["dur"]

    def flags(self, name: str) -> Flags:
        flags: Flags = self.columns[name] != 0
        return flags

    def event(self, number: int) -> Any:
        return self.batch[int(self.at[number])]

    def events(self) -> Iterator[Any]:
        return map(self.batch.__getitem__, self.at.tolist())

    def between(self, first: int, past: int) -> Self:
        """The events in a part of the batch."""
        begin, end = np.searchsorted(self.at, (first, past)).tolist()
        if end - begin == len(self.at):
            return self
        columns = {field: column[begin:end] for field, column in self.columns.items()}
        tables = {field: [_between(some, begin, end) for some in table] for field, table in self.tables.items()}
        return type(self)(self.batch, self.at[begin:end], columns, tables)

    def where(self, which: Flags) -> Self:
        """The events for which ``which`` is true; without their tables."""
        if which.all():
            return self
        columns = {field: column[which] for field, column in self.columns.items()}
        return type(self)(self.batch, self.at[which], columns)


def _between(some: Alike, begin: int, end: int) -> Alike:
    first, past = np.searchsorted(some.those, (begin, end)).tolist()
    return Alike(some.keys, some.those[first:past] - begin, some.numbers[first:past])


Kinds = dict[type, Kind]


class Columns(NamedTuple):
    """A batch of events in columns."""

    batch: Sequence[Any]
    codes: Column  # of each event its kind's, of :data:`CODES`
    kinds: Kinds  # of all that have a code


def moments(of: Columns) -> Column:
    """When each event of a batch began, ns; -1: it is of a kind without that number."""
    begin = np.full(len(of.codes), -1)
    for kind, some in of.kinds.items():
        if len(some) and (field := "start" if kind is ev.Execute else "t") in some.columns:
            begin[some.at] = some[field]
    return begin


def of_events(batch: Sequence[ev.AnyEvent | ev.Event]) -> Columns:
    """The columns of events at hand."""
    codes = np.fromiter(map(CODES.get, map(type, batch), repeat(0)), np.int64, len(batch))
    kinds = {}
    for kind, code in CODES.items():
        at = np.flatnonzero(codes == code)
        events = [batch[one] for one in at.tolist()]
        kinds[kind] = Kind(
            batch,
            at,
            {},
            {field: list(_alike([getattr(event, field) for event in events])) for field in TABLES.get(kind, ())},
        )
        for field in FIELDS.get(kind, ()):
            kinds[kind].columns[field] = np.fromiter(map(attrgetter(field), events), np.int64, len(events))
        for name, flag in FLAGS.get(kind, {}).items():
            kinds[kind].columns[name] = np.fromiter(map(flag, events), np.int64, len(events))
    return Columns(batch, codes, kinds)


def _alike(tables: Sequence[dict[str, list[int]]]) -> Iterator[Alike]:
    by_keys: dict[tuple[str, ...], list[int]] = {}
    for n, some in enumerate(map(tuple, tables)):
        if some:
            by_keys.setdefault(some, []).append(n)
    for keys, those in by_keys.items():
        triples = chain.from_iterable(tables[n].values() for n in those)
        numbers = np.fromiter(chain.from_iterable(triples), np.int64, 3 * len(keys) * len(those))
        yield Alike(keys, np.array(those), numbers.reshape(len(those), -1))


def merged(batch: Sequence[Any], parts: Sequence[Kind]) -> Kind:
    """Events of one kind that were told apart, in their order."""
    if len(parts) == 1:
        return parts[0]
    at = np.concatenate([part.at for part in parts])
    order = np.argsort(at, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    columns = {field: np.concatenate([part[field] for part in parts])[order] for field in parts[0].columns}
    tables: dict[str, list[Alike]] = {field: [] for field in parts[0].tables}
    done = 0
    for part in parts:
        for field, table in part.tables.items():
            tables[field] += [some._replace(those=rank[done + some.those]) for some in table]
        done += len(part)
    return Kind(batch, at[order], columns, tables)
