"""Idle gaps of a device, every nanosecond blamed on exactly one thing the host did.

The cause of an idle nanosecond is the first of these that is known:

1. the host's activity on its timeline: compile, transfer, fallback, dispatch, data wait, garbage collection;
2. a sample (:class:`~xlaprof.events.Sample`) of the host drawing its data, saving a checkpoint or waiting for the
   interpreter's lock;
3. the innermost named scope;
4. any other sample;
5. a :class:`~xlaprof.events.Hole`: plain Python between two known lines;
6. tracing, while the barrier that follows has tracing time left;
7. "other".

Idle time while the host waits inside a read for the device to finish can only be the tail latency of that read.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from xlaprof.analysis import sums
from xlaprof.analysis.names import Ids
from xlaprof.analysis.sums import add_bounded

from .device import IdleStretch
from .host import CHECKPOINT, COMPILE, DATA, GIL, OTHER, SCOPE, TRACING, Segment, within
from .occasions import Occasions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Column = NDArray[np.int64]
    Flags = NDArray[np.bool_]

LONGEST = 32  # gaps kept one by one
_PLACES = 32  # lines kept per cause
CAUSES = 2048  # causes kept apart; further holes count as "other"

_ALIKE = 0.2  # a gap counts like sampled ones if it has at least this share of their length
LONG = 1_000_000  # ns: shorter gaps do not count for a habit
STRONG = frozenset({DATA, CHECKPOINT, GIL})  # causes that say more than the name of a scope


class Seen(NamedTuple):
    """The result of a sample of the host: a cause of host time, at a stack."""

    cause: int
    stack: int
    at: int  # stack of the other thread that the host waited for; 0: none


#: A cause of idle time: a cause of host time, the pair of stacks of a hole, or the result of a sample.
Cause = int | tuple[int, int] | Seen


class SampleSpan(NamedTuple):
    """Samples found the host doing one thing over ``[start, end)``."""

    start: int
    end: int
    seen: Seen


class HoleSpan(NamedTuple):
    """Plain Python: nothing was recorded over ``[start, end)``, between the operations at two stacks."""

    start: int
    end: int
    before: int
    after: int


#: A :class:`HoleSpan` as a bare tuple.
HoleRow = tuple[int, int, int, int]


#: Start, end, number and ordinal of a step, and further fields.
Step = tuple[int, int, int, int, *tuple[object, ...]]


class TracingLeft(msgspec.Struct):
    """The stretch before a barrier and the tracing time in it that no gap has used yet."""

    start: int
    end: int
    left: int


class LongGap(msgspec.Struct, frozen=True, order=True, gc=False):
    """One of the longest gaps."""

    dur: int
    start: int
    step: int
    parts: tuple[tuple[Cause, int], ...]
    stack: int
    hole: tuple[int, int]


class Tally(sums.Tally):
    """The cost of a cause: total ns, number of gaps, the most in one.

    ``holes`` and ``lines`` are of scopes and samples: the holes they overlapped, and the stacks sampled. The fields of
    the habit count gaps in which the cause took long and nothing was compiled: ``habit_total`` their ns,
    ``habit_most`` the most in one, ``habit`` their steps, and ``recorded`` the ns in which the host, in a scope,
    recorded operations.
    """

    total: int = 0
    gaps: int = 0
    most: int = 0
    recorded: int = 0
    holes: dict[tuple[int, int], int] = msgspec.field(default_factory=dict)
    lines: dict[int, int] = msgspec.field(default_factory=dict)
    habit: Occasions = msgspec.field(default_factory=Occasions)
    habit_total: int = 0
    habit_most: int = 0

    def add(self, gaps: int, total: int, most: int) -> None:
        """``total``: ns in so many gaps; ``most``: in one of them."""
        self.total += total
        self.gaps += gaps
        self.most = max(self.most, most)

    def add_habit(self, total: int, most: int, steps: Sequence[int]) -> None:
        """The same of gaps in which it took long; ``steps``: the ordinals of their steps."""
        self.habit_total += total
        self.habit_most = max(self.habit_most, most)
        self.habit.add_all(steps)

    def add_hole(self, hole: tuple[int, int], ns: int) -> None:
        add_bounded(self.holes, hole, ns, _PLACES)

    def add_line(self, stack: int, ns: int) -> None:
        add_bounded(self.lines, stack, ns, _PLACES)


class IdleBlame(msgspec.Struct):
    """Totals of blamed idle time, and the longest gaps."""

    sums: ClassVar[bool] = False  # whether it is told of gaps that it does not remember

    causes: dict[Cause, Tally] = msgspec.field(default_factory=dict)
    longest: list[tuple[int, int, LongGap]] = msgspec.field(default_factory=list)  # a heap: (dur, serial, gap)
    serial: int = 0

    def blame(
        self,
        gaps: Sequence[IdleStretch],
        segments: list[Segment],
        holes: Sequence[HoleRow],
        traced: Sequence[TracingLeft],
        steps: Sequence[Step] = (),
        samples: Sequence[SampleSpan] = (),
    ) -> None:
        """Blame ``gaps``; all arguments sorted, all but ``steps`` disjoint."""
        starts = [segment[0] for segment in segments]
        hole_ends, seen_ends = [hole[1] for hole in holes], [one.end for one in samples]
        traced_ends, over = [one.end for one in traced], list(accumulate((step[1] for step in steps), max))
        causes = self.causes
        spent: defaultdict[Cause, list[int]] = defaultdict(list)  # ns in each gap
        #: ns in each gap in which it took long and nothing was compiled, and the step of that gap
        lasting: defaultdict[Cause, list[tuple[int, int]]] = defaultdict(list)
        for start, end in gaps:
            inside = within(segments, starts, start, end)
            first_hole, first_traced = bisect_right(hole_ends, start), bisect_right(traced_ends, start)
            first_seen = bisect_right(seen_ends, start)
            parts: dict[Cause, int] = {}
            if first_seen < len(samples) and samples[first_seen].start < end:
                inside = self._blame_samples(start, end, inside, samples, first_seen, holes, first_hole, parts)
            blank: list[tuple[int, int]] = []
            scoped: Segment | None = None  # the longest of a scope
            longest = (end - start) // 8  # shorter ones do not explain the gap
            cursor = start
            for segment in inside:
                begin, stop, cause, _ = segment
                if begin > cursor:
                    blank.append((cursor, begin))
                cursor = stop
                if cause < 0:  # a sample, counted already
                    continue
                ns = stop - begin
                parts[cause] = parts.get(cause, 0) + ns
                if ns > longest and cause >= SCOPE:
                    scoped, longest = segment, ns
            if cursor < end:
                blank.append((cursor, end))
            if blank:
                self._blame_blank(blank, holes, hole_ends, traced, first_traced, parts)
            steady = end - start >= LONG and COMPILE not in parts
            # of the step with most of the gap, which may begin a little before or after
            middle = bisect_right(over, (start + end) // 2)
            step = steps[middle][3] if middle < len(steps) else -1
            for each, ns in parts.items():
                self.tally(each)
                spent[each].append(ns)
                if ns >= LONG and steady:
                    lasting[each].append((ns, step))
            for segment in inside if scoped is not None else ():
                # a scope may not know its line; the hole that overlaps it most does
                begin, stop, cause, _ = segment
                if cause >= SCOPE:
                    if segment is scoped or (steady and stop - begin >= LONG):
                        _add_holes(causes[cause], begin, stop, holes, first_hole)
                    used = _use(traced, first_traced, begin, stop)
                    if steady and parts[cause] >= LONG:
                        causes[cause].recorded += used
            if end - start > self.shortest:
                first = bisect_right(over, start)
                in_step = first < len(steps) and steps[first][0] <= start
                self.remember(start, end, parts, inside, steps[first][2] if in_step else -1)
            elif self.sums:
                self.sum_up(start, end - start, parts)
        for each, of_each in spent.items():
            causes[each].add(len(of_each), sum(of_each), max(of_each))
        for each, habit in lasting.items():
            long = [ns for ns, _ in habit]
            causes[each].add_habit(sum(long), max(long), [step for _, step in habit])

    @property
    def shortest(self) -> int:
        """The length above which gaps are remembered."""
        return self.longest[0][0] if len(self.longest) >= LONGEST else -1

    def remembers(self, begins: Column, lengths: Column) -> Flags:
        """Which of these gaps are remembered, as far as is known before the first of them is."""
        return lengths > self.shortest

    def _blame_samples(
        self,
        start: int,
        end: int,
        inside: list[Segment],
        samples: Sequence[SampleSpan],
        first: int,
        holes: Sequence[HoleRow],
        first_hole: int,
        parts: dict[Cause, int],
    ) -> list[Segment]:
        """Count the samples in a gap, and return the gap's segments with the samples among them (as cause -1).

        Events win over samples. Inside a scope only the samples count that say more than its name.
        """
        found: list[Segment] = []
        blank: list[tuple[int, int, int]] = []  # start, end, scope or -1
        cursor = start
        for segment in inside:
            begin, stop, cause, _ = segment
            if begin > cursor:
                blank.append((cursor, begin, -1))
            if cause >= SCOPE:
                blank.append((begin, stop, cause))
            else:
                found.append(segment)
                if cause == DATA:
                    self._place_data(segment, samples, first)
            cursor = stop
        if cursor < end:
            blank.append((cursor, end, -1))
        for begin, stop, scope in blank:
            cursor = begin
            for since, until, seen in _rest(samples, first):
                if since >= stop:
                    break
                since, until = max(since, cursor), min(until, stop)
                if until <= since:
                    continue
                if scope >= 0 and seen.cause not in STRONG:
                    self.tally(scope).add_line(seen.stack, until - since)
                    continue
                if scope >= 0 and since > cursor:
                    found.append((cursor, since, scope, 0))
                counted = self._known(seen)
                parts[counted] = parts.get(counted, 0) + until - since
                tally = self.tally(counted)
                tally.add_line(seen.stack, until - since)
                _add_holes(tally, since, until, holes, first_hole)
                found.append((since, until, -1, seen.stack))
                cursor = until
            if scope >= 0 and cursor < stop:
                found.append((cursor, stop, scope, 0))
        found.sort()
        return found

    def _place_data(self, segment: Segment, samples: Sequence[SampleSpan], first: int) -> None:
        """Count the line at which a loader's thread made the data that the host waited for."""
        start, end, cause, _ = segment
        for since, until, seen in _rest(samples, first):
            if since >= end:
                break
            ns = min(until, end) - max(since, start)
            if ns > 0 and seen.at:
                self.tally(cause).add_line(seen.at, ns)

    def seen_in(self) -> dict[tuple[int, int], Seen]:
        """The most frequent sample of each sampled hole.

        Of a hole that comes every step some are sampled. The others count as the same where they are as long.
        """
        most: dict[tuple[int, int], tuple[int, Seen]] = {}
        for cause, tally in self.causes.items():
            if not isinstance(cause, Seen) or not tally.gaps:
                continue
            for hole, ns in tally.holes.items():
                unseen = self.causes.get(hole)
                if unseen is None or not unseen.gaps or ns <= most.get(hole, (0, cause))[0]:
                    continue
                if unseen.total / unseen.gaps >= _ALIKE * tally.total / tally.gaps:
                    most[hole] = ns, cause
        return {hole: cause for hole, (_, cause) in most.items()}

    def _known(self, cause: Cause) -> Cause:
        """``cause`` itself; where there are too many causes, the general one that it counts for."""
        if cause in self.causes or len(self.causes) < CAUSES:
            return cause
        return cause.cause if isinstance(cause, Seen) else OTHER

    def merge(self, other: IdleBlame, ids: Ids) -> None:
        """Add another's totals, its ids mapped to ours."""

        def ours(cause: Cause) -> Cause:
            if isinstance(cause, Seen):
                return Seen(cause.cause, ids.stack(cause.stack), ids.stack(cause.at))
            if isinstance(cause, tuple):
                return ids.stack(cause[0]), ids.stack(cause[1])
            return SCOPE + ids.text(cause - SCOPE) if cause >= SCOPE else cause

        def hole(key: tuple[int, int]) -> tuple[int, int]:
            return ids.stack(key[0]), ids.stack(key[1])

        for cause, tally in other.causes.items():
            holes = {hole(key): ns for key, ns in tally.holes.items()}
            lines = {ids.stack(stack): ns for stack, ns in tally.lines.items()}
            self.tally(ours(cause)).merge(replace(tally, holes=holes, lines=lines))
        for _, _, gap in other.longest:
            parts = tuple((ours(cause), ns) for cause, ns in gap.parts)
            self._keep(msgspec.structs.replace(gap, parts=parts, stack=ids.stack(gap.stack), hole=hole(gap.hole)))

    def tally(self, cause: Cause) -> Tally:
        tally = self.causes.get(cause)
        if tally is None:
            tally = self.causes[cause] = Tally()
        return tally

    def _blame_blank(
        self,
        blank: Iterable[tuple[int, int]],
        holes: Sequence[HoleRow],
        hole_ends: list[int],
        traced: Sequence[TracingLeft],
        first_traced: int,
        parts: dict[Cause, int],
    ) -> None:
        """Blame stretches without an interval of the host: plain Python, tracing, other."""
        other = tracing = 0
        for start, end in blank:
            cursor = start
            nth = bisect_right(hole_ends, start)
            while nth < len(holes) and holes[nth][0] < end:
                begin, stop, before, after = holes[nth]
                nth += 1
                if begin > cursor:
                    other += begin - cursor
                    tracing += _use(traced, first_traced, cursor, begin)
                    cursor = begin
                stop = min(stop, end)
                cause = self._known((before, after))
                parts[cause] = parts.get(cause, 0) + stop - cursor
                cursor = stop
            if cursor < end:
                other += end - cursor
                tracing += _use(traced, first_traced, cursor, end)
        if tracing:
            parts[TRACING] = parts.get(TRACING, 0) + tracing
        if other > tracing:
            parts[OTHER] = parts.get(OTHER, 0) + other - tracing

    def remember(self, begin: int, stop: int, parts: dict[Cause, int], segments: Sequence[Segment], step: int) -> None:
        ranked = tuple(sorted(parts.items(), key=lambda part: -part[1]))
        self._keep(LongGap(stop - begin, begin, step, ranked, *self.where(ranked[0][0], segments)))

    def sum_up(self, begin: int, ns: int, parts: dict[Cause, int]) -> None:
        """A gap that is not remembered."""

    def sum_up_many(self, begins: Column, lengths: Column, causes: Sequence[Cause], main: Column) -> None:
        """Like :meth:`sum_up` of many gaps. ``main``: the number of the cause of most of each."""

    def where(self, main: Cause, segments: Sequence[Segment]) -> tuple[int, tuple[int, int]]:
        """The stack and the hole that a gap is shown with, by its main cause and the segments in it."""
        stack = most = 0
        hole = (0, 0)
        if isinstance(main, Seen):
            stack = main.stack
        elif isinstance(main, tuple):
            hole = main
        else:
            for start, end, cause, place in segments:
                if cause == main and end - start > most:
                    stack, most = place, end - start
            if main >= SCOPE:
                hole = max(self.causes[main].holes.items(), key=lambda item: item[1], default=(hole, 0))[0]
        return stack, hole

    def _keep(self, gap: LongGap) -> None:
        self.serial += 1
        if gap.dur > self.shortest:
            add = heapq.heappush if len(self.longest) < LONGEST else heapq.heapreplace
            add(self.longest, (gap.dur, self.serial, gap))


_T = TypeVar("_T")


def _rest(items: Sequence[_T], first: int) -> Iterator[_T]:
    """The items from number ``first`` on, without a copy: mostly few are used."""
    return map(items.__getitem__, range(first, len(items)))


def _add_holes(tally: Tally, start: int, end: int, holes: Sequence[HoleRow], first: int) -> None:
    for begin, stop, before, after in _rest(holes, first):
        if begin >= end:
            break
        ns = min(stop, end) - max(begin, start)
        if ns > 0:
            tally.add_hole((before, after), ns)


def _use(traced: Sequence[TracingLeft], first: int, start: int, end: int) -> int:
    """Take as much tracing time for ``[start, end)`` as its barriers have left."""
    taken = 0
    while first < len(traced) and (stretch := traced[first]).start < end:
        first += 1
        if left := stretch.left:
            used = (end if end < stretch.end else stretch.end) - (start if start > stretch.start else stretch.start)
            if used > 0:
                stretch.left = max(0, left - used)
                taken += left - stretch.left
    return taken
