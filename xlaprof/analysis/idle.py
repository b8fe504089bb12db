"""Idle gaps of a device, every nanosecond blamed on exactly one thing the host did.

The cause of an idle nanosecond is, in this order: what the host's timeline says it did then (compile, transfer,
fallback, dispatch, data wait, garbage collection; else the innermost named scope); a :class:`~xlaprof.events.Hole`,
plain Python between two known lines; tracing, as long as the barrier that follows has tracing time left; "other".
Idle time while the host waits inside a read for the device to finish can only be the tail latency of that read.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from xlaprof.analysis.device import Quiet
from xlaprof.analysis.host import OTHER, SCOPE, TRACING, Segment, within

LONGEST = 32  # gaps kept one by one
_PLACES = 256  # lines kept per cause
_CAUSES = 4096  # causes kept apart; further holes count as "other"

#: A cause of idle time: a cause of host time, or the pair of stacks of a hole.
Cause = int | tuple[int, int]


class Hollow(NamedTuple):
    """Plain Python: nothing was recorded over ``[start, end)``, between the operations at two stacks."""

    start: int
    end: int
    before: int
    after: int


class Traced:
    """The stretch before a barrier and the tracing time in it that no gap has used yet."""

    __slots__ = ("end", "left", "start")

    def __init__(self, start: int, end: int, left: int) -> None:
        self.start = start
        self.end = end
        self.left = left


class LongGap(NamedTuple):
    """One of the longest gaps."""

    dur: int
    start: int
    step: int
    parts: tuple[tuple[Cause, int], ...]
    stack: int
    hole: tuple[int, int]


class Tally:
    """What a cause cost: total ns, number of gaps, the most in one, and for a scope the holes it overlapped."""

    __slots__ = ("gaps", "holes", "most", "total")

    def __init__(self) -> None:
        self.total = 0
        self.gaps = 0
        self.most = 0
        self.holes: dict[tuple[int, int], int] = {}

    def merge(self, other: Tally) -> None:
        self.total += other.total
        self.gaps += other.gaps
        self.most = max(self.most, other.most)
        for hole, ns in other.holes.items():
            self.holes[hole] = self.holes.get(hole, 0) + ns


class IdleBlame:
    """Totals of blamed idle time, and the longest gaps."""

    def __init__(self) -> None:
        self.causes: dict[Cause, Tally] = {}
        self.longest: list[tuple[int, int, LongGap]] = []  # a heap of (dur, serial, gap), the shortest on top
        self._serial = 0

    def blame(
        self,
        gaps: Sequence[Quiet],
        segments: Sequence[Segment],
        holes: Sequence[Hollow],
        traced: Sequence[Traced],
        steps: Sequence[tuple[int, int, int]] = (),
    ) -> None:
        """Blame ``gaps``; all arguments sorted and disjoint (``steps``: start, end, number)."""
        first_hole = first_traced = first_step = 0
        starts = [segment[0] for segment in segments]
        hole_count, stretch_count, step_count = len(holes), len(traced), len(steps)
        causes = self.causes
        for gap in gaps:
            start, end = gap
            while first_hole < hole_count and holes[first_hole][1] <= start:
                first_hole += 1
            while first_traced < stretch_count and traced[first_traced].end <= start:
                first_traced += 1
            parts: dict[Cause, int] = {}
            blank: list[tuple[int, int]] = []
            scoped: Segment | None = None  # the longest of a scope
            longest = (end - start) // 8  # shorter ones do not explain the gap
            cursor = start
            inside = within(segments, starts, start, end)
            for segment in inside:
                begin, stop, cause, _ = segment
                if begin > cursor:
                    blank.append((cursor, begin))
                ns = stop - begin
                if cause in parts:
                    parts[cause] += ns
                else:
                    parts[cause] = ns
                if cause >= SCOPE and ns > longest:
                    scoped, longest = segment, ns
                cursor = stop
            if cursor < end:
                blank.append((cursor, end))
            if blank:
                self._blank(blank, holes, first_hole, traced, first_traced, parts)
            for each, ns in parts.items():
                tally = causes.get(each)
                if tally is None:
                    tally = causes[each] = Tally()
                tally.total += ns
                tally.gaps += 1
                if ns > tally.most:
                    tally.most = ns
            if scoped is not None:
                self._place_scope(scoped, holes, first_hole)
            if len(self.longest) < LONGEST or end - start > self.longest[0][0]:
                while first_step < step_count and steps[first_step][1] <= start:
                    first_step += 1
                in_step = first_step < step_count and steps[first_step][0] <= start
                self._remember(gap, parts, inside, steps[first_step][2] if in_step else -1)

    def merge(self, other: IdleBlame, texts: dict[int, int], stacks: dict[int, int]) -> None:
        """Add another's totals, its ids mapped to ours."""

        def ours(cause: Cause) -> Cause:
            if isinstance(cause, tuple):
                return stacks.get(cause[0], 0), stacks.get(cause[1], 0)
            return SCOPE + texts.get(cause - SCOPE, 0) if cause >= SCOPE else cause

        for cause, tally in other.causes.items():
            mapped = Tally()
            mapped.merge(tally)
            mapped.holes = {(stacks.get(a, 0), stacks.get(b, 0)): ns for (a, b), ns in tally.holes.items()}
            self._tally(ours(cause)).merge(mapped)
        for _, _, gap in other.longest:
            a, b = gap.hole
            self._keep(
                gap._replace(
                    parts=tuple((ours(cause), ns) for cause, ns in gap.parts),
                    stack=stacks.get(gap.stack, 0),
                    hole=(stacks.get(a, 0), stacks.get(b, 0)),
                )
            )

    def copy(self) -> IdleBlame:
        twin = IdleBlame()
        for cause, tally in self.causes.items():
            twin._tally(cause).merge(tally)
        twin.longest = self.longest.copy()
        twin._serial = self._serial
        return twin

    def _tally(self, cause: Cause) -> Tally:
        tally = self.causes.get(cause)
        if tally is None:
            tally = self.causes[cause] = Tally()
        return tally

    def _blank(
        self,
        blank: Iterable[tuple[int, int]],
        holes: Sequence[Hollow],
        first_hole: int,
        traced: Sequence[Traced],
        first_traced: int,
        parts: dict[Cause, int],
    ) -> None:
        """Blame stretches in which no interval was told: plain Python, tracing, other."""
        other = tracing = 0
        hole_count, stretch_count = len(holes), len(traced)
        for start, end in blank:
            cursor = start
            position = first_hole
            while position < hole_count:
                begin, stop, before, after = holes[position]
                if begin >= end:
                    break
                position += 1
                if stop <= cursor:
                    continue
                if begin > cursor:
                    other += begin - cursor
                    tracing += _use(traced, first_traced, stretch_count, cursor, begin)
                    cursor = begin
                if stop > end:
                    stop = end
                pair = (before, after)
                cause: Cause = pair if pair in self.causes or len(self.causes) < _CAUSES else OTHER
                parts[cause] = parts.get(cause, 0) + stop - cursor
                cursor = stop
            if cursor < end:
                other += end - cursor
                tracing += _use(traced, first_traced, stretch_count, cursor, end)
        if tracing:
            parts[TRACING] = parts.get(TRACING, 0) + tracing
        if other > tracing:
            parts[OTHER] = parts.get(OTHER, 0) + other - tracing

    def _place_scope(self, segment: Segment, holes: Sequence[Hollow], first: int) -> None:
        """A scope may not know its line; the hole that overlaps it most does."""
        start, end, cause, _ = segment
        tally = self.causes[cause]
        for position in range(first, len(holes)):
            begin, stop, before, after = holes[position]
            if begin >= end:
                break
            ns = (stop if stop < end else end) - (begin if begin > start else start)
            pair = (before, after)
            if ns > 0 and (pair in tally.holes or len(tally.holes) < _PLACES):
                tally.holes[pair] = tally.holes.get(pair, 0) + ns

    def _remember(self, gap: Quiet, parts: dict[Cause, int], segments: Sequence[Segment], step: int) -> None:
        ranked = tuple(sorted(parts.items(), key=lambda part: -part[1]))
        main = ranked[0][0]
        stack = most = 0
        for start, end, cause, place in segments:
            if cause == main and end - start > most:
                stack, most = place, end - start
        hole = (0, 0)
        if isinstance(main, tuple):
            hole = main
        elif main >= SCOPE:
            hole = max(self.causes[main].holes.items(), key=lambda item: item[1], default=(hole, 0))[0]
        self._keep(LongGap(gap.end - gap.start, gap.start, step, ranked, stack, hole))

    def _keep(self, gap: LongGap) -> None:
        self._serial += 1
        entry = (gap.dur, self._serial, gap)
        if len(self.longest) < LONGEST:
            heapq.heappush(self.longest, entry)
        elif gap.dur > self.longest[0][0]:
            heapq.heapreplace(self.longest, entry)


def _use(traced: Sequence[Traced], first: int, count: int, start: int, end: int) -> int:
    """Take as much tracing time for ``[start, end)`` as its barriers have left."""
    taken = 0
    while first < count:
        stretch = traced[first]
        if stretch.start >= end:
            break
        left = stretch.left
        if left:
            used = (end if end < stretch.end else stretch.end) - (start if start > stretch.start else stretch.start)
            if used > left:
                used = left
            if used > 0:
                stretch.left = left - used
                taken += used
        first += 1
    return taken
