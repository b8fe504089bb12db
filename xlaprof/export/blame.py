"""Every idle gap of a run with its blame, and the part of it that was *input*: the next batch was on its way.

XProf divides idle time into waiting for input and the rest. Here input is the wait for data, the copy to the device,
and what the host did right before such a copy, in the same gap: the named scope, the line or the stretch of plain
Python that made what was copied. What else the host did (compiling, reading, recording, logging) is not.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from xlaprof.analysis.evidence.idle_time import label, place_of
from xlaprof.analysis.model import Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.run import Run
from xlaprof.analysis.timeline.host import COMPILE, DATA, GC, SCOPE, UPLOAD, Segment
from xlaprof.analysis.timeline.idle import Cause, LongGap, Seen
from xlaprof.analysis.timeline.kept import EveryGap
from xlaprof.export.timeline import Execution, Uploads

_BESIDE = frozenset({UPLOAD, GC})  # may lie between what makes a batch and the copy of it


class Input(msgspec.Struct, frozen=True):
    """A stretch of idle time in which input was on its way. Nanoseconds."""

    start: int
    end: int
    cause: Cause


class BlamedGaps(EveryGap):
    """Keeps every gap of the run ``of``, and the stretches of input."""

    uploads: Uploads = msgspec.field(default_factory=Uploads)
    of: Run | None = None
    gaps: list[LongGap] = msgspec.field(default_factory=list)
    input: list[Input] = msgspec.field(default_factory=list)

    def put(self, gap: LongGap) -> None:
        self.gaps.append(gap)

    def remember(self, begin: int, stop: int, parts: dict[Cause, int], segments: Sequence[Segment], step: int) -> None:
        super().remember(begin, stop, parts, segments, step)
        found = [Input(start, end, cause) for start, end, cause, _ in segments if cause in (DATA, UPLOAD)]
        waiting = {cause.stack: cause for cause in parts if isinstance(cause, Seen) and cause.cause == DATA}
        found += [Input(a, b, waiting[stack]) for a, b, cause, stack in segments if cause < 0 and stack in waiting]
        starts = [segment[0] for segment in segments]
        for moment, stack in self.uploads.within(begin, stop, self.of.main_thread if self.of is not None else 1):
            found += _made(moment, stack, parts, segments, bisect_right(starts, moment) - 1)
        self.input += _apart(found, begin)


def _made(moment: int, stack: int, parts: dict[Cause, int], segments: Sequence[Segment], nth: int) -> Iterator[Input]:
    """What the host did right before it copied something to the device; ``nth``: the segment before or around that."""
    for cause, ns in parts.items():
        if isinstance(cause, tuple) and not isinstance(cause, Seen) and cause[1] == stack:
            yield Input(moment - ns, moment, cause)
    while nth >= 0 and segments[nth][2] in _BESIDE:
        nth -= 1
    if nth < 0:
        return
    start, end, cause, line = segments[nth]
    if (cause >= SCOPE or cause < 0) and moment - end <= end - start:
        seen = next((one for one in parts if isinstance(one, Seen) and one.stack == line), None)
        for a, b, other, other_line in segments[: nth + 1]:
            if other == cause and (cause >= 0 or other_line == line) and (cause >= 0 or seen is not None):
                yield Input(a, min(b, moment), cause if seen is None or cause >= 0 else seen)


def _apart(found: Iterable[Input], begin: int) -> Iterator[Input]:
    """``found`` in order, and no moment twice."""
    cursor = begin
    for one in sorted(found, key=lambda one: (one.start, one.end)):
        start = max(one.start, cursor)
        if one.end > start:
            yield Input(start, one.end, one.cause)
            cursor = one.end


class Blame:
    """What the gaps of a settled run are blamed on, in the words of its report."""

    def __init__(self, settled: Run, blamed: BlamedGaps) -> None:
        self._run = settled
        self._seen_in: dict[Cause, Cause] = dict(blamed.seen_in())
        self._names: dict[Cause, str] = {}
        self._gaps = sorted(blamed.gaps, key=lambda gap: gap.start)
        self._starts = array("q", (gap.start for gap in self._gaps))
        self.input = list(_apart(blamed.input, -1))  # of several devices together
        input_ns = sum(one.end - one.start for one in self.input)
        idle_ns = sum(ns for gap in self._gaps for cause, ns in gap.parts if cause != COMPILE)
        #: of idle time without compiles, 0..1: what is input of steps that are known as sums, too
        self.input_share = min(1.0, input_ns / idle_ns) if idle_ns else 0.0

    def inputs(self, summed: Iterable[Execution]) -> Iterator[tuple[int, int, str, bool]]:
        """Stretches of input in order: start, end, cause, and whether it was the copy to the device itself.

        ``summed``: executions of steps that are known as sums. Of their idle time as much is input as of the others'.
        """
        found = [(one.start, one.end, self.name(one.cause), one.cause == UPLOAD) for one in self.input]
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

    def gap(self, start: int, end: int) -> tuple[list[tuple[str, int]], Place]:
        """The causes of the idle time in ``[start, end)`` with their ns, the largest first, and the main one's line."""
        for nth in range(bisect_left(self._starts, start), bisect_right(self._starts, start)):
            gap = self._gaps[nth]
            if gap.dur == end - start:
                parts: Counter[str] = Counter()
                for cause, ns in gap.parts:
                    parts[self.name(cause)] += ns
                return parts.most_common(), place_of(gap, self._run)
        return [], NOWHERE
