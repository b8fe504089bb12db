"""The events that a finding counts: descriptions that several kinds of findings share.

The analysis adds up and forgets, so a finding keeps a description of its events.
:mod:`xlaprof.analysis.occurrences` reads the recording a second time and finds the events with it. Ids are the
recording's own.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

import msgspec

from xlaprof.analysis.fold.reads_and_fallbacks import pair
from xlaprof.analysis.fold.tallies import CompileRecord, times_run
from xlaprof.analysis.model import Moment
from xlaprof.columns import events_of
from xlaprof.events import (
    AnyEvent,
    Barrier,
    DynamoCompile,
    Event,
    Execute,
    Fallback,
    JitCompile,
    Step,
    StepDigest,
    TransferFromDevice,
)
from xlaprof.text.quantities import plural

Key = tuple[int, int]  # stack, operation


def values(changes: Iterable[tuple[str, str]]) -> tuple[tuple[str, int], ...]:
    """Every value of a thing that changed, and what was compiled for it, in order of first use.

    ``changes``: the value before and now, at each compile; empty where it is not known.
    """
    counts: dict[str, int] = {}
    for nth, (old, new) in enumerate(changes):
        if not nth and old:
            counts[old] = 1
        if new:
            counts[new] = counts.get(new, 0) + 1
    return tuple(counts.items())


class Known(msgspec.Struct, frozen=True):
    """Events that the analysis keeps one by one."""

    moments: tuple[Moment, ...]

    def among(self, batches: Iterable[Sequence[AnyEvent]]) -> Iterator[Moment]:
        return iter(self.moments)


def compiles(records: Iterable[CompileRecord | DynamoCompile | JitCompile]) -> Known:
    """These compiles, each with what it compiled."""
    return Known(tuple(Moment(one.t, one.dur, detail=plural(one.ops, "operation")) for one in records))


class Matching(msgspec.Struct, frozen=True):
    """Events of one class whose ``fields`` have the values of one of ``keys``."""

    event: type[Event]
    fields: tuple[str, ...]
    keys: frozenset[tuple[int | str, ...]]
    detail: str = ""  # the field that says what it was: a text, or a number of operations
    nonzero: str = ""  # a further field, which must not be 0
    count: str = ""  # the field that says how many one event stands for
    digest: str = ""  # the field of StepDigest with the sums of such events by stack and operation

    def among(self, batches: Iterable[Sequence[AnyEvent]]) -> Iterator[Moment]:
        kinds: set[type] = {self.event, StepDigest} if self.digest else {self.event}
        for event in events_of(batches, kinds):
            if type(event) is self.event and (not self.nonzero or getattr(event, self.nonzero)):
                if tuple(getattr(event, name) for name in self.fields) in self.keys:
                    yield self._moment(event)
            elif self.digest and isinstance(event, StepDigest):
                yield from _of_digest(event, getattr(event, self.digest), self.keys)

    def _moment(self, event: AnyEvent) -> Moment:
        if isinstance(event, Execute):
            times = times_run(event.program, event.calls) if self.count else 1
            return Moment(event.t, event.end - event.start, times)
        value: int | str = getattr(event, self.detail) if self.detail else ""
        detail = plural(value, "operation") if isinstance(value, int) else value
        count = getattr(event, self.count) if self.count else 1
        return Moment(getattr(event, "t", 0), getattr(event, "dur", 0), count, detail)


class ReadEvents(msgspec.Struct, frozen=True):
    """Reads inside steps, between barriers, or all of them; without reads inside a fallback."""

    in_steps: frozenset[Key]
    looped: frozenset[Key]
    all: frozenset[Key]

    def among(self, batches: Iterable[Sequence[AnyEvent]]) -> Iterator[Moment]:
        keys = self.in_steps | self.looped | self.all
        unclaimed: list[TransferFromDevice] = []  # until a step, or a barrier, ends
        has_barrier = False
        for event in events_of(batches, {TransferFromDevice, Fallback, Step, Barrier, StepDigest}):
            if isinstance(event, TransferFromDevice):
                if (event.stack, event.op) in keys:
                    unclaimed.append(event)
            elif isinstance(event, Fallback):
                unclaimed = [read for read in unclaimed if not _inside(read, event)]
            elif isinstance(event, Step):
                yield from _moments(unclaimed, self.all)
                yield from _moments((read for read in unclaimed if read.t >= event.t), self.in_steps)
                unclaimed = [read for read in unclaimed if (read.stack, read.op) in self.looped]
            elif isinstance(event, Barrier) and event.trigger != "read":
                if has_barrier:
                    yield from _moments(unclaimed, self.looped)
                has_barrier = True
                unclaimed = [read for read in unclaimed if (read.stack, read.op) not in self.looped]
            elif isinstance(event, StepDigest):
                reads = {key: triple for key, triple in event.reads.items() if key not in event.fallbacks}
                yield from _of_digest(event, reads, keys)
        yield from _moments(unclaimed, self.all)


def _moments(reads: Iterable[TransferFromDevice], keys: frozenset[Key]) -> Iterator[Moment]:
    return (Moment(read.t, read.dur) for read in reads if (read.stack, read.op) in keys)


def _inside(read: TransferFromDevice, fallback: Fallback) -> bool:
    same = read.tid == fallback.tid
    return same and fallback.t <= read.t and read.t + read.dur <= fallback.t + fallback.dur


def _of_digest(event: StepDigest, table: dict[str, list[int]], keys: Container[object]) -> Iterator[Moment]:
    for key, triple in table.items():
        if pair(key) in keys:
            count, total, _ = triple
            yield Moment(event.t, total, count)
