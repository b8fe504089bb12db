"""Events of a long recording as columns: for each kind the positions of its events in a batch, and their numbers.

Rare kinds have no columns: such an event is counted by itself, the events between two of them at once.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import compress, pairwise, repeat
from operator import attrgetter, itemgetter
from typing import Any

import msgspec
import numpy as np

from xlaprof import events as ev
from xlaprof.analysis.timeline.columns.intervals import MOST, Column, Flags, NotVectorizable, unique

#: Kind of event counted in columns -> the fields that are counted. Lengths come after ``t``.
FIELDS: dict[type, tuple[str, ...]] = {
    ev.Scope: ("t", "dur", "name", "depth", "tid"),
    ev.Step: ("t", "dur", "name", "num"),
    ev.Hole: ("t", "dur", "before", "after", "tid"),
    ev.Barrier: ("t", "dur", "stack", "ops", "tracing", "execution", "loops"),
    ev.Execute: ("t", "start", "end", "enqueue", "program", "stack", "device"),
    ev.TransferToDevice: ("t", "dur", "bytes", "stack", "tid", "calls", "again"),
    ev.TransferFromDevice: ("t", "dur", "wait", "bytes", "op", "stack", "tid", "late"),
    ev.DeviceWait: ("t", "dur", "stack", "tid"),
    ev.DataWait: ("t", "dur", "stack", "tid"),
    ev.Gc: ("t", "dur", "stack"),
    ev.Live: (),
    ev.StepDigest: ("t", "dur", "name", "num", "executions", "busy", "tracing", "barriers"),
}
#: Kinds that may be counted before or after the events around them.
ANYTIME = (ev.Text, ev.Stack, ev.Batches, ev.Thread, ev.Evicted, ev.Sample, ev.Look, ev.Counters)
#: Fields that are summed up.
_SUMMED = frozenset({"dur", "wait", "bytes", "ops", "tracing", "enqueue", "executions", "busy", "barriers", "calls"})

_CODES = {kind: code for code, kind in enumerate([*FIELDS, *ANYTIME], 1)}  # 0: neither


def has(codes: Column, *some: type) -> bool:
    """Is an event of one of these kinds in a batch with these codes?"""
    return bool(np.isin(codes, [_CODES[kind] for kind in some]).any())


class Kind(msgspec.Struct):
    """Events of one kind: their positions in their batch, ascending, and their numbers, a column for each field."""

    at: Column
    events: Sequence[Any]
    columns: dict[str, Column]

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, field: str) -> Column:
        """The numbers of a field; of one that is not counted they are made when they are first asked for."""
        if field not in self.columns:
            self.columns[field] = _column(self.events, field)
        return self.columns[field]

    @property
    def end(self) -> Column:
        """The ends of intervals."""
        return self.columns["t"] + self.columns["dur"]

    def between(self, first: int, past: int) -> Kind:
        """The events in a part of the batch."""
        begin, end = np.searchsorted(self.at, (first, past)).tolist()
        if end - begin == len(self.at):
            return self
        columns = {field: column[begin:end] for field, column in self.columns.items()}
        return Kind(self.at[begin:end], self.events[begin:end], columns)

    def where(self, which: Flags) -> Kind:
        """The events for which ``which`` is true."""
        if which.all():
            return self
        columns = {field: column[which] for field, column in self.columns.items()}
        return Kind(self.at[which], list(compress(self.events, which.tolist())), columns)

    @property
    def for_reads(self) -> Flags:
        """Which barriers and executions a read triggered."""
        flags: Flags = self.columns["trigger"] != 0
        return flags


Kinds = dict[type, Kind]


def require_known(known: Container[int], some: Kind, field: str) -> None:
    """Raise :class:`NotVectorizable` where one of the ids is new."""
    new = [one for one in unique(some[field])[0].tolist() if one not in known]
    if new:
        raise NotVectorizable(int(some.at[np.isin(some[field], new)][0]))


def ends_of_steps(part: Kinds) -> Kind:
    """All steps of a part, recorded in full or as digests."""
    steps, digests = part[ev.Step], part[ev.StepDigest]
    if not len(digests):
        return steps
    at = np.concatenate((steps.at, digests.at))
    order = np.argsort(at, kind="stable")
    columns = {field: np.concatenate((steps[field], digests[field]))[order] for field in ("t", "dur", "name", "num")}
    return Kind(at[order], (), columns)


def codes_of(batch: Sequence[ev.AnyEvent | ev.Event]) -> Column:
    """A number for the kind of each event; 0 for kinds that have no columns."""
    return np.fromiter(map(_CODES.get, map(type, batch), repeat(0)), np.int64, len(batch))


def stretches(codes: Column, least: int) -> Iterator[tuple[int, int, bool]]:
    """Cut a batch into parts: begin, end, and whether the part may be counted at once."""
    alone = np.flatnonzero(codes == 0).tolist()
    done = 0
    for before, after in pairwise([-1, *alone, len(codes)]):
        if after - before > least:
            if before >= done:
                yield done, before + 1, False
            yield before + 1, after, True
            done = after
    if done < len(codes):
        yield done, len(codes), False


def kinds(batch: Sequence[ev.AnyEvent | ev.Event], codes: Column) -> Kinds:
    """The columns of a batch without any event of code 0. Raises :class:`NotVectorizable` where sums are too large."""
    found = {}
    for kind, code in _CODES.items():
        at = np.flatnonzero(codes == code)
        events = _chosen(batch, at.tolist())
        fields = FIELDS.get(kind, ())
        found[kind] = Kind(at, events, {field: _column(events, field) for field in fields})
    for kind in (ev.Barrier, ev.Execute):
        events = found[kind].events
        for_reads = np.fromiter([event.trigger == "read" for event in events], np.int64, len(events))
        found[kind].columns["trigger"] = for_reads
    return found


def _chosen(batch: Sequence[Any], at: list[int]) -> Sequence[Any]:
    if len(at) > 1:
        return itemgetter(*at)(batch)  # type: ignore[no-any-return]
    return tuple(batch[one] for one in at)


def _column(events: Sequence[Any], field: str) -> Column:
    numbers: Column = np.fromiter(map(attrgetter(field), events), np.int64, len(events))
    if field in _SUMMED and len(numbers) and numbers.max() >= MOST:
        raise NotVectorizable
    return numbers
