"""What the host was doing: overlapping and nested intervals turned into disjoint segments, the innermost winning."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import msgspec

#: (start, end, cause, stack id): one stretch of host time, nanoseconds, with the one cause it counts for.
Segment = tuple[int, int, int, int]

# Causes of host time. A named scope is SCOPE plus the id of its name.
OTHER, COMPILE, TRANSFER, UPLOAD, FALLBACK, DISPATCH, DATA, GC, TRACING, CHECKPOINT, GIL, WAIT, CPU = range(13)
GLIMPSE, IMPORT = 13, 14
SCOPE = 16

CAUSES = {
    COMPILE: "compile",
    TRANSFER: "transfer wait",
    UPLOAD: "upload",
    FALLBACK: "fallback",
    DISPATCH: "dispatch",
    DATA: "data wait",
    GC: "garbage collection",
    TRACING: "tracing",
    CHECKPOINT: "checkpoint",
    GIL: "waiting for the interpreter's lock",
    WAIT: "waiting",
    CPU: "waiting for a processor",
    IMPORT: "import",
    GLIMPSE: "python",  # seen once: it is not known how it ran
    OTHER: "other",
}


class HostTimeline(msgspec.Struct):
    """One thread's intervals, painted as they end.

    Recorders write an interval when it ends, so intervals inside it come before it: painting only blank time gives
    every nanosecond to the innermost. Painted stretches are kept as solid blocks. The interval around a block swallows
    it once, so painting costs O(1) amortised. Intervals that come late or overlap without nesting are painted correctly
    too, more slowly. New intervals wait in ``unpainted`` until :meth:`paint`.
    """

    unpainted: list[Segment] = msgspec.field(default_factory=list)  # in the order in which they came
    segments: list[Segment] = msgspec.field(default_factory=list)  # painted: disjoint; sorted once taken
    horizon: int = -(1 << 62)  # everything before it is taken
    _starts: list[int] = msgspec.field(default_factory=list)
    _ends: list[int] = msgspec.field(default_factory=list)

    def __len__(self) -> int:
        """How much is held."""
        return len(self.unpainted) + len(self.segments)

    def paint(self) -> None:
        """Give each waiting interval's cause the blank time in its ``[start, end)``."""
        self._paint(self.unpainted)
        self.unpainted.clear()

    def _paint(self, many: Sequence[Segment]) -> None:
        segments, starts, ends, horizon = self.segments, self._starts, self._ends, self.horizon
        last = ends[-1] if ends else horizon
        for segment in many:
            start, end, cause, stack = segment
            if start < horizon:
                start = horizon
                segment = (start, end, cause, stack)
            if end <= start:
                continue
            if start >= last:
                segments.append(segment)
                starts.append(start)
                ends.append(end)
                last = end
            elif end >= last:  # intervals inside it came before it, and none after its end
                cursor = end
                while last > start:
                    if last < cursor:
                        segments.append((last, cursor, cause, stack))
                    cursor = starts.pop()
                    ends.pop()
                    if not ends:
                        break
                    last = ends[-1]
                if cursor > start:
                    segments.append((start, cursor, cause, stack))
                    cursor = start
                starts.append(cursor)
                ends.append(end)
                last = end
            else:
                self._fill(start, end, cause, stack)
                last = ends[-1]

    def _fill(self, start: int, end: int, cause: int, stack: int) -> None:
        """Paint between existing blocks."""
        segments, starts, ends = self.segments, self._starts, self._ends
        first = bisect_right(ends, start)  # the first block that ends after the start
        last = bisect_left(starts, end)  # the first block that starts at or after the end
        cursor = start
        for block in range(first, last):
            if starts[block] > cursor:
                segments.append((cursor, starts[block], cause, stack))
            cursor = ends[block]
        if cursor < end:
            segments.append((cursor, end, cause, stack))
            cursor = end
        if first < last:
            start = min(start, starts[first])
        starts[first:last] = [start]
        ends[first:last] = [cursor]

    def repaint(self, start: int, old: int, new: int) -> None:
        """Give ``new`` the time of ``old`` since ``start``: transfers inside a fallback belong to it."""
        self.paint()
        segments = self.segments
        for position in range(len(segments) - 1, -1, -1):
            begin, end, cause, stack = segments[position]
            if end <= start:
                break
            if begin >= start and cause == old:
                segments[position] = (begin, end, new, stack)

    def take(self, horizon: int) -> list[Segment]:
        """Remove and return, sorted, the segments before ``horizon``; one that crosses it is cut there."""
        self.paint()
        self.segments.sort()
        segments = self.segments
        cut = bisect_left(segments, (horizon,))
        taken, self.segments = segments[:cut], segments[cut:]
        if taken and taken[-1][1] > horizon:
            begin, end, cause, stack = taken[-1]
            taken[-1] = (begin, horizon, cause, stack)
            self.segments.insert(0, (horizon, end, cause, stack))
        gone = bisect_right(self._ends, horizon)
        del self._starts[:gone], self._ends[:gone]
        if self._starts and self._starts[0] < horizon:
            self._starts[0] = horizon
        self.horizon = max(self.horizon, horizon)
        return taken

    def hold(self, segments: list[Segment], horizon: int) -> None:
        """Replace everything held by ``segments``, which lie after ``horizon``."""
        self.unpainted.clear()
        self.segments = segments
        self.horizon = max(self.horizon, horizon)
        self._starts = [segment[0] for segment in segments]
        self._ends = [segment[1] for segment in segments]


def within(segments: Sequence[Segment], starts: Sequence[int], start: int, end: int) -> list[Segment]:
    """The parts of sorted disjoint segments that lie in ``[start, end)``; ``starts``: where the segments start."""
    if end <= start:
        return []
    first = bisect_left(starts, start)
    if first and segments[first - 1][1] > start:
        first -= 1
    inside = list(segments[first : bisect_left(starts, end, first)])
    if inside:
        begin, stop, cause, stack = inside[0]
        if begin < start:
            inside[0] = (start, stop, cause, stack)
        begin, stop, cause, stack = inside[-1]
        if stop > end:
            inside[-1] = (begin, end, cause, stack)
    return inside
