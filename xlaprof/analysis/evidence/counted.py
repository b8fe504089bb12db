"""Which events a finding counts: one struct for each sort of event.

The analysis adds up and forgets, so a finding keeps a description of its events. Whoever explains the finding reads the
recording a second time and finds them with it (:mod:`xlaprof.analysis.occurrences`). Ids are the recording's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from xlaprof.analysis.fold.fold import Fold
from xlaprof.analysis.fold.series import Series
from xlaprof.analysis.fold.tallies import CompileRecord, Reading, Site
from xlaprof.analysis.fold.totals import INFERRED
from xlaprof.analysis.fold.transfers import pair, triple_of
from xlaprof.analysis.model import Moment
from xlaprof.analysis.timeline.host import Segment
from xlaprof.analysis.timeline.idle import Cause, IdleBlame
from xlaprof.events import (
    AnyEvent,
    Barrier,
    Compile,
    DynamoCompile,
    Execute,
    Fallback,
    GraphBreak,
    Step,
    StepDigest,
    TransferFromDevice,
)

Key = tuple[int, int]  # stack, operation


class Known(msgspec.Struct, frozen=True):
    """Events that the analysis keeps one by one."""

    moments: tuple[Moment, ...]

    def among(self, events: Iterable[AnyEvent], since_step: int | None) -> Iterator[Moment]:
        return iter(self.moments)


def compiles(records: Iterable[CompileRecord]) -> Known:
    """These compiles, each with what it compiled."""
    return Known(tuple(Moment(one.t, one.dur, detail=f"{one.ops:,} operations") for one in records))


class Fallbacks(msgspec.Struct, frozen=True):
    """Operations that ran on the CPU."""

    keys: frozenset[Key]

    def among(self, events: Iterable[AnyEvent], since_step: int | None) -> Iterator[Moment]:
        for event in events:
            if isinstance(event, Fallback) and (event.stack, event.op) in self.keys:
                yield Moment(event.t, event.dur)
            elif isinstance(event, StepDigest):
                yield from _of_digest(event, event.fallbacks, self.keys)


class ReadEvents(msgspec.Struct, frozen=True):
    """Reads: those inside steps, those between barriers, or all of them. What a fallback read is not among them."""

    in_steps: frozenset[Key]
    looped: frozenset[Key]
    all: frozenset[Key]

    def among(self, events: Iterable[AnyEvent], since_step: int | None) -> Iterator[Moment]:
        keys = self.in_steps | self.looped | self.all
        unclaimed: list[TransferFromDevice] = []  # until a step, or a barrier, ends
        has_barrier = False
        for event in events:
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


def _of_digest(event: StepDigest, table: dict[str, list[int]], keys: frozenset[Key]) -> Iterator[Moment]:
    for key, triple in table.items():
        if pair(key) in keys:
            count, total, _ = triple_of(triple)
            yield Moment(event.t, total, count)


class Barriers(msgspec.Struct, frozen=True):
    """Barriers that ran something."""

    stacks: frozenset[int]

    def among(self, events: Iterable[AnyEvent], since_step: int | None) -> Iterator[Moment]:
        for event in events:
            if isinstance(event, Barrier) and event.execution and event.stack in self.stacks:
                yield Moment(event.t, event.dur, detail=f"{event.ops:,} operations")


class Runs(msgspec.Struct, frozen=True):
    """Executions at one barrier, without those of some programs."""

    stack: int
    but: frozenset[int]

    def among(self, events: Iterable[AnyEvent], since_step: int | None) -> Iterator[Moment]:
        for event in events:
            if isinstance(event, Execute) and event.stack == self.stack and event.program not in self.but:
                yield Moment(event.t, event.end - event.start)


class Growths(msgspec.Struct, frozen=True):
    """The longest row of graphs, ended at one place, of which each is larger than the one before."""

    stack: int

    def among(self, events: Iterable[AnyEvent], since_step: int | None) -> Iterator[Moment]:
        site = Site()
        row: list[Moment] = []
        longest: list[Moment] = []
        for event in events:
            if not isinstance(event, Barrier | Compile) or event.stack != self.stack:
                continue
            before = site.grew
            if isinstance(event, Barrier) and event.execution:
                site.visit(event.ops)
            elif isinstance(event, Compile) and event.trigger == "read":
                site.grow(event.ops)
            if site.grew > before:
                row.append(Moment(event.t, event.dur, detail=f"{event.ops:,} operations"))
                longest = row if len(row) > len(longest) else longest
            elif site.grew < before:
                row = []
        return iter(longest)


class Breaks(msgspec.Struct, frozen=True):
    """Graph breaks, by stack and reason."""

    keys: frozenset[tuple[int, str]]

    def among(self, events: Iterable[AnyEvent], since_step: int | None) -> Iterator[Moment]:
        for event in events:
            if isinstance(event, GraphBreak) and (event.stack, event.reason) in self.keys:
                yield Moment(event.t, detail=event.reason)


class Captures(msgspec.Struct, frozen=True):
    """What torch.compile traced for calls from one line."""

    stack: int

    def among(self, events: Iterable[AnyEvent], since_step: int | None) -> Iterator[Moment]:
        for event in events:
            if isinstance(event, DynamoCompile) and event.stack == self.stack:
                yield Moment(event.t, event.dur, detail=f"{event.ops:,} operations")


class IdleGaps(msgspec.Struct, frozen=True):
    """Gaps of the device in which the host did one of these things. The recording is analysed again to find them."""

    causes: frozenset[Cause]

    def among(self, events: Iterable[AnyEvent], since_step: int | None) -> Iterator[Moment]:
        fold = Fold(since_step)
        gaps = fold.window.idle = _EveryGap(self.causes)
        for event in events:
            fold.feed(event)
            yield from gaps.taken()
        fold.window.settle(final=True)
        yield from gaps.taken()


class _EveryGap(IdleBlame):
    """Keeps every gap that has one of some causes, where the analysis keeps the longest."""

    def __init__(self, wanted: frozenset[Cause]) -> None:
        super().__init__()
        self._wanted = wanted
        self._gaps: list[Moment] = []

    def taken(self) -> list[Moment]:
        taken, self._gaps = self._gaps, []
        return taken

    def _remember(self, begin: int, stop: int, parts: dict[Cause, int], segments: Sequence[Segment], step: int) -> None:
        if not self._wanted.isdisjoint(parts):
            self._gaps.append(Moment(begin, sum(ns for cause, ns in parts.items() if cause in self._wanted)))


class Rises(msgspec.Struct, frozen=True):
    """Steps in which more became alive on the device, from one reading to the next."""

    def among(self, events: Iterable[AnyEvent], since_step: int | None) -> Iterator[Moment]:
        fold = Fold(since_step)
        readings = fold.lives = _Readings()
        found: list[tuple[Reading, Moment]] = []
        for event in events:
            fold.feed(event)
            if readings.latest is not None:
                t: int = getattr(event, "t", 0)
                latest, readings.latest = readings.latest, None
                steps = latest.step - found[-1][0].step if found else 0
                found.append((latest, Moment(t, 0, steps, f"{latest.tensors:,} tensors")))
        last = readings.values[-1].step if readings.values else 0
        return (moment for reading, moment in found if moment.count and reading.step <= last)


class _Readings(Series[Reading]):
    """Readings of what is alive, the latest at hand."""

    __slots__ = ("latest",)

    def __init__(self) -> None:
        super().__init__()
        self.latest: Reading | None = None

    def add(self, value: Reading) -> None:
        super().add(value)
        self.latest = value


class Steps(msgspec.Struct, frozen=True):
    """The steps of a name, but the first."""

    name: int = INFERRED

    def among(self, events: Iterable[AnyEvent], since_step: int | None) -> Iterator[Moment]:
        fold = Fold(since_step)
        seen = 0
        for event in events:
            fold.feed(event)
            tally = fold.steps.get(self.name)
            if tally is not None and tally.series.seen > seen:
                seen = tally.series.seen
                end: int = getattr(event, "t", 0) + getattr(event, "dur", 0)
                yield Moment(end - tally.recent[-1], tally.recent[-1])
