"""Every idle gap of a run with its blame, and the part of it that was *input*: the next batch was on its way.

XProf divides idle time into waiting for input and the rest. Here input is the wait for data, the copy to the device,
and what the host did right before such a copy, in the same gap: the named scope, the line or the stretch of plain
Python that made what was copied. What else the host did (compiling, reading, recording, logging) is not.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from copy import copy

import msgspec

from xlaprof.analysis.evidence.idle_time import label, place_of
from xlaprof.analysis.model import Place
from xlaprof.analysis.run import Run
from xlaprof.analysis.timeline.host import (
    COMPILE,
    DATA,
    DISPATCH,
    GC,
    GLIMPSE,
    OTHER,
    SCOPE,
    TRACING,
    UPLOAD,
    WAIT,
    Segment,
)
from xlaprof.analysis.timeline.idle import LONGEST, Cause, IdleBlame, LongGap, Seen
from xlaprof.export.timeline import Execution, Uploads

_BESIDE = frozenset({UPLOAD, GC})  # may lie between what makes a batch and the copy of it
_CALLING = frozenset({DISPATCH, TRACING})  # may, too, where samples show it: JAX copies within the call of a function
_OWN = frozenset({OTHER, GLIMPSE, WAIT})  # samples of what the program does itself


#: An input: start, end, cause.
Input = tuple[int, int, Cause]


#: What many gaps have in common: causes, the one that took most first; stack and hole that say where that was.
Shape = tuple[tuple[Cause, ...], int, tuple[int, int]]


class Gaps:
    """Gaps in columns, some 60 bytes each."""

    def __init__(self) -> None:
        self.start, self.dur, self.shape = array("q"), array("q"), array("q")
        self.ns = array("q")  # of each gap by cause, one after the other
        self.first = array("q")  # where those of a gap begin
        self.shapes: dict[Shape, int] = {}
        self.input_start, self.input_end, self.input_cause = array("q"), array("q"), array("q")
        self.causes: dict[Cause, int] = {}

    def copy(self) -> Gaps:
        twin = Gaps()
        for name, held in vars(self).items():
            setattr(twin, name, copy(held))
        return twin

    def add(self, start: int, dur: int, shape: Shape, ns: Iterable[int]) -> None:
        self.start.append(start)
        self.dur.append(dur)
        self.shape.append(self.shapes.setdefault(shape, len(self.shapes)))
        self.first.append(len(self.ns))
        self.ns.extend(ns)

    def add_input(self, one: Input) -> None:
        self.input_start.append(one[0])
        self.input_end.append(one[1])
        self.input_cause.append(self.causes.setdefault(one[2], len(self.causes)))


class BlamedGaps(IdleBlame):
    """Keeps every gap of the run ``of``, and the stretches of input."""

    uploads: Uploads = msgspec.field(default_factory=Uploads)
    of: Run | None = None
    gaps: Gaps = msgspec.field(default_factory=Gaps)

    @property
    def shortest(self) -> int:
        return -1

    def remember(self, begin: int, stop: int, parts: dict[Cause, int], segments: Sequence[Segment], step: int) -> None:
        if len(self.longest) < LONGEST or stop - begin > self.longest[0][0]:
            super().remember(begin, stop, parts, segments, step)
        ranked = sorted(parts, key=parts.__getitem__, reverse=True)
        self.gaps.add(
            begin, stop - begin, (tuple(ranked), *self.where(ranked[0], segments)), map(parts.__getitem__, ranked)
        )
        copies = self.uploads.within(begin, stop, self.of.main_thread if self.of is not None else 1)
        if not copies and DATA not in parts and UPLOAD not in parts and not any(isinstance(one, Seen) for one in parts):
            return
        found: list[Input] = [(start, end, cause) for start, end, cause, _ in segments if cause in (DATA, UPLOAD)]
        waiting = {cause.stack: cause for cause in parts if isinstance(cause, Seen) and cause.cause == DATA}
        found += [(a, b, waiting[stack]) for a, b, cause, stack in segments if cause < 0 and stack in waiting]
        starts = [segment[0] for segment in segments]
        for moment, stack in copies:
            found += _made(moment, stack, parts, segments, bisect_right(starts, moment) - 1)
        for one in _apart(found, begin):
            self.gaps.add_input(one)


def _made(moment: int, stack: int, parts: dict[Cause, int], segments: Sequence[Segment], nth: int) -> Iterator[Input]:
    """What the host did right before it copied something to the device; ``nth``: the segment before or around that."""
    for blamed, ns in parts.items():
        if isinstance(blamed, tuple) and not isinstance(blamed, Seen) and blamed[1] == stack:
            yield moment - ns, moment, blamed
    seen = {one.stack: one for one in parts if isinstance(one, Seen)}
    edge = moment
    while nth >= 0:
        start, end, cause, line = segments[nth]
        if cause not in _BESIDE and (cause >= 0 or line not in seen or seen[line].cause not in _CALLING):
            break
        edge, nth = min(edge, start), nth - 1
    if nth < 0 or edge - end > end - start:
        return
    if cause >= SCOPE:
        yield from ((a, min(b, moment), cause) for a, b, other, _ in segments[: nth + 1] if other == cause)
    elif cause < 0 and line in seen and seen[line].cause in _OWN:
        yield from ((a, b, seen[line]) for a, b, other, at in segments[: nth + 1] if other < 0 and at == line)


def _apart(found: Iterable[Input], begin: int) -> Iterator[Input]:
    """``found`` in order, and no moment twice."""
    cursor = begin
    for start, end, cause in sorted(found, key=lambda one: one[:2]):
        start = max(start, cursor)
        if end > start:
            yield start, end, cause
            cursor = end


class Blame:
    """What the gaps of a settled run are blamed on, in the words of its report."""

    def __init__(self, settled: Run, blamed: BlamedGaps) -> None:
        self._run = settled
        self._seen_in: dict[Cause, Cause] = dict(blamed.seen_in())
        self._names: dict[Cause, str] = {}
        gaps = self._gaps = blamed.gaps
        self.shapes = list(gaps.shapes)
        self._order = sorted(range(len(gaps.start)), key=gaps.start.__getitem__)
        self._starts = array("q", map(gaps.start.__getitem__, self._order))
        causes = list(gaps.causes)
        inputs = zip(gaps.input_start, gaps.input_end, map(causes.__getitem__, gaps.input_cause), strict=True)
        self._input = list(_apart(inputs, -1))  # of several devices together
        compiles = {nth for nth, shape in enumerate(self.shapes) if COMPILE in shape[0]}
        idle_ns = sum(gaps.dur)
        for nth, shape in enumerate(gaps.shape):
            if shape in compiles:
                idle_ns -= gaps.ns[gaps.first[nth] + self.shapes[shape][0].index(COMPILE)]
        #: of idle time without compiles, 0..1: what is input of steps that are known as sums, too
        self.input_share = min(1.0, sum(end - start for start, end, _ in self._input) / idle_ns) if idle_ns else 0.0

    def inputs(self, summed: Iterable[Execution]) -> Iterator[tuple[int, int, str, bool]]:
        """Stretches of input in order: start, end, cause, and whether it was the copy to the device itself.

        ``summed``: executions of steps that are known as sums. Of their idle time as much is input as of the others'.
        """
        found = [(start, end, self.name(cause), cause == UPLOAD) for start, end, cause in self._input]
        for e in summed:
            if ns := round((e.until - e.end) * self.input_share):
                found.append((e.end, e.end + ns, "in a step recorded as sums", False))
        return iter(sorted(found))

    def name(self, cause: Cause) -> str:
        """What the report calls a cause."""
        found = self._names.get(cause)
        if found is None:
            found = self._names[cause] = label(self._seen_in.get(cause, cause), self._run.names)
        return found

    def place(self, shape: int) -> Place:
        """The line to show for a gap of this shape."""
        causes, stack, hole = self.shapes[shape]
        return place_of(LongGap(0, 0, 0, ((causes[0], 0),), stack, hole), self._run)

    def gap(self, start: int, end: int) -> tuple[int, Sequence[int]] | None:
        """The shape of the gap over ``[start, end)``, and the ns of each of its causes; None for one not known."""
        nth = bisect_left(self._starts, start)
        while nth < len(self._starts) and self._starts[nth] == start:
            which = self._order[nth]
            if self._gaps.dur[which] == end - start:
                shape, first = self._gaps.shape[which], self._gaps.first[which]
                return shape, self._gaps.ns[first : first + len(self.shapes[shape][0])]
            nth += 1
        return None
