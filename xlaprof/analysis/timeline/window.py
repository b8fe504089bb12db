"""The part of a run that is still moving: recent host segments and executions, settled in order into totals.

Host events come when they end, executions when the device has finished them, which may be many host events later. So
both are held back until no event can change them: up to the end of the last step (a scope around several steps does not
explain what happens in one) and up to the last execution reported.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Self

import msgspec

from xlaprof.analysis.names import Ids
from xlaprof.analysis.sums import twin

from .device import DeviceTimeline, IdleStretch
from .host import OTHER, SCOPE, TRACING, HostTimeline, Segment, within
from .idle import HoleRow, IdleBlame, SampleSpan, TracingLeft
from .schedule import Schedule

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Column = NDArray[np.int64]

_SETTLE_AT = 8192  # segments and executions held before settling
KEEP = 4096  # of them held back where no step shows what is finished
GIVE_UP_AT = 65536  # segments held without a report from a device: from then on it counts as idle

FOREVER = 1 << 62
CAUSES = SCOPE + 1  # of a split: scopes count together


#: A step that has ended but whose time is not wholly settled: start, end, number, ordinal among the recording's steps,
#: name, whether it was the first of that name, and ns of tracing.
_Step = tuple[int, int, int, int, int, bool, int]


class Split(msgspec.Struct):
    """Where the time of steps went, summed: nanoseconds by cause. The causes sum to ``total``."""

    steps: int = 0
    total: int = 0
    busy: int = 0
    parts: list[int] = msgspec.field(default_factory=lambda: [0] * CAUSES)

    def add(self, steps: int, total: int, busy: int, parts: Sequence[int]) -> None:
        self.steps += steps
        self.total += total
        self.busy += busy
        self.parts = [a + b for a, b in zip(self.parts, parts, strict=True)]

    def add_segments(self, segments: Sequence[Segment]) -> int:
        """Add the host's time in the steps; returns its ns."""
        parts, total = self.parts, 0
        for begin, stop, cause, _ in segments:
            ns = stop - begin
            parts[cause if cause < SCOPE else SCOPE] += ns
            total += ns
        return total

    def merge(self, other: Split) -> None:
        self.add(other.steps, other.total, other.busy, other.parts)


class Window:
    """Recent host segments, executions and steps in; settled totals out."""

    def __init__(self) -> None:
        self.host = HostTimeline()
        self.devices: dict[int, DeviceTimeline] = {}
        self.idle = IdleBlame()
        self.schedule = Schedule()  # for replay
        self.first: dict[int, Split] = {}  # the first step of each name
        self.splits: dict[int, Split] = {}  # the others
        self.steps_end = 0  # end of the last named step; 0: none yet
        self.holes: list[HoleRow] = []
        self.samples: list[SampleSpan] = []
        self.traced: list[tuple[int, int, int]] = []  # start and end of the stretch before a barrier; ns of tracing
        self.next_ordinal = 0  # of the step that ends next
        self.tracing_since_step: list[tuple[int, int]] = []  # (moment, ns) of the barriers since the last step
        self.last_barrier = 0
        self.open_steps: list[_Step] = []
        self.carried: dict[int, Split] = {}  # ordinal of an open step -> its settled part
        self.settle_when = _SETTLE_AT
        #: settles what is held in columns, if it can: of long recordings (:mod:`.columns.settle`)
        self.at_once: Callable[[Window, bool], bool] | None = None

    def add_hole(self, start: int, end: int, before: int, after: int) -> None:
        holes = self.holes
        if holes and start < holes[-1][1]:
            start = holes[-1][1]
        if end > start and len(holes) < GIVE_UP_AT:
            hole = (start, end, before, after)
            holes.append(hole)
            self.schedule.holes.append(hole)

    def add_sample(self, sample: SampleSpan) -> None:
        """The host was sampled. Samples come in order; one that overlaps the sample before is cut."""
        if self.samples and sample.start < self.samples[-1].end:
            sample = sample._replace(start=self.samples[-1].end)
        if sample.end > sample.start and len(self.samples) < GIVE_UP_AT:
            self.samples.append(sample)

    def add_barrier(self, moment: int, end: int, tracing: int, ops: int = 0) -> None:
        last = self.last_barrier
        if tracing:
            self.schedule.recordings.append((last or moment - tracing, moment, end, tracing, ops))
            if moment > last:  # else it came late, and the stretch before it belongs to another barrier
                self.traced.append((last, moment, tracing))
            self.tracing_since_step.append((moment, tracing))
        if end > last:
            self.last_barrier = end

    def add_execution(self, device: int, start: int, end: int, busy: int = -1) -> None:
        """``busy``: ns of work, of a stretch that stands for several executions; -1: all of it."""
        timeline = self.devices.get(device)
        if timeline is None:
            timeline = self.devices[device] = DeviceTimeline()
        timeline.add(start, end, busy)
        if len(timeline.pending) + len(self.host) >= self.settle_when:
            self.settle()

    def add_step(self, name: int, num: int, start: int, end: int, first: bool, named: bool = True) -> None:
        tracing = 0
        if self.tracing_since_step:
            for moment, ns in self.tracing_since_step:
                if moment >= start:
                    tracing += ns
            self.tracing_since_step.clear()
        self.open_steps.append((start, end, num, self.next_ordinal, name, first, tracing))
        self.next_ordinal += 1
        if named and end > self.steps_end:
            self.steps_end = end
        if len(self.host) + len(self.open_steps) >= self.settle_when:
            self.settle()

    def add_digest(
        self, name: int, num: int, start: int, total: int, busy: int, parts: dict[int, int], first: bool
    ) -> None:
        """A step known as a digest. Its parts are sums that may overlap: each gets at most the time still left."""
        self.schedule.digest_ns += total
        by_cause = [0] * CAUSES
        left = total
        for cause, ns in parts.items():
            by_cause[cause] = min(ns, left)
            left -= by_cause[cause]
        by_cause[OTHER] = left
        split = Split(1, total, busy, by_cause)
        self.split(name, first).merge(split)
        self.passed(name, num, self.next_ordinal, start, split)
        self.next_ordinal += 1

    def passed(self, name: int, num: int, ordinal: int, start: int, split: Split) -> None:
        """Told of each step whose time is known, one by one, for those who keep steps."""

    def passed_at_once(self, steps: Column, busy: Column, parts: Column) -> None:
        """Like :meth:`passed` of many steps.

        Rows of ``steps``: start, end, number, ordinal, name. Of each of them ``busy`` has an entry, ``parts`` a row.
        """

    def has_room_for(self, holes: int) -> bool:
        """Whether this many more holes are kept."""
        return len(self.holes) + holes < GIVE_UP_AT

    def relieve(self) -> None:
        """Bound the memory where no execution or step settles anything. Called every 65,536 events."""
        if len(self.host) + len(self.holes) + len(self.traced) + len(self.samples) > GIVE_UP_AT:
            self.settle()
        if len(self.tracing_since_step) > GIVE_UP_AT:
            del self.tracing_since_step[:-KEEP]
        for held in (self.holes, self.traced, self.samples):
            if len(held) >= GIVE_UP_AT:
                del held[: len(held) // 2]
        self.schedule.relieve(GIVE_UP_AT)

    def settle(self, final: bool = False) -> None:
        """Turn what can change no more into totals; with ``final``, everything."""
        if self.at_once is None or not self.at_once(self, final):
            self._settle(final)

    def _settle(self, final: bool) -> None:
        self.host.paint()
        horizon = FOREVER if final else self._horizon()
        gaps: list[list[IdleStretch]] = []
        busy: list[tuple[int, int]] = []
        host_horizon = horizon
        crowded = len(self.host.segments) >= GIVE_UP_AT
        for timeline in self.devices.values():
            quiet, ran = timeline.settle(horizon, final)
            if crowded and not final:
                quiet += timeline.give_up(horizon)
            gaps.append(quiet)
            busy += ran
            if not crowded:
                host_horizon = min(host_horizon, timeline.floor())
        if final:
            host_horizon = FOREVER
        segments = self.host.take(host_horizon)
        after = self.schedule.end or None
        closed = [step for step in self.open_steps if step[1] <= host_horizon and (after is None or step[0] >= after)]
        holes = [hole for hole in self.holes if hole[0] < host_horizon]
        self.open_steps.sort(key=itemgetter(0))
        samples = stretched([one for one in self.samples if one.start < host_horizon], holes)
        self.schedule.settle(None if final else host_horizon, segments, closed, samples)
        traced = [stretch for stretch in self.traced if stretch[0] < host_horizon]
        later = self.traced[len(traced) :]  # sorted
        left: list[list[tuple[int, int, int]]] = []
        for quiet in gaps:
            stretches = [TracingLeft(*stretch) for stretch in traced]
            self.idle.blame(quiet, segments, holes, stretches, self.open_steps, samples)
            left.append([(one.start, one.end, one.left) for one in stretches])
        # each of several devices has all of the tracing; the part that the first one leaves is carried on
        self.traced = [stretch for stretch in (left or [traced])[0] if stretch[1] > host_horizon] + later
        busy.sort()
        self._divide(host_horizon, segments, busy)
        self.holes = [hole for hole in self.holes if hole[1] > host_horizon]
        self.samples = [one for one in self.samples if one.end > host_horizon]
        self.plan_next_settle()

    def plan_next_settle(self) -> None:
        """Settle again once 8,192 more segments, and executions or steps, are held than now."""
        held = max((len(timeline.pending) for timeline in self.devices.values()), default=0)
        self.settle_when = _SETTLE_AT + max(held, len(self.open_steps)) + len(self.host)

    def copy(self) -> Self:
        """A twin that can be settled without touching this one."""
        return twin(self)

    def merge(self, other: Window, ids: Ids) -> None:
        """Add the settled totals of another recording, its ids mapped to ours."""
        self.idle.merge(other.idle, ids)
        self.schedule.merge(other.schedule, ids)
        for mine, theirs in ((self.first, other.first), (self.splits, other.splits)):
            for name, split in theirs.items():
                mine.setdefault(ids.text(name), Split()).merge(split)

    def _horizon(self) -> int:
        """The moment before which the host's intervals are complete."""
        horizon = self.steps_end
        segments = self.host.segments
        if len(segments) > KEEP:
            segments.sort()
            horizon = max(horizon, segments[-KEEP][0])
        for timeline in self.devices.values():
            if len(timeline.pending) > KEEP:
                timeline.pending.sort()
                horizon = max(horizon, timeline.pending[-KEEP][0])
        return horizon

    def _divide(self, horizon: int, segments: list[Segment], busy: list[tuple[int, int]]) -> None:
        """Give open steps the time that lies in them; steps over by ``horizon`` are counted."""
        over = [step for step in self.open_steps if step[1] <= horizon]
        self.open_steps = [step for step in self.open_steps if step[1] > horizon]
        self._count(over, segments, busy)
        until = max([stretch[1] for stretch in (*segments[-1:], *busy)], default=0)
        self.carry_on([step for step in self.open_steps if step[0] < until], segments, busy)

    def carry_on(self, begun: list[_Step], segments: list[Segment], busy: list[tuple[int, int]]) -> None:
        """Give steps that are not over the time that lies in them so far."""
        starts = [segment[0] for segment in segments] if begun else []
        begins = [stretch[0] for stretch in busy] if begun else []
        for start, end, _, ordinal, _, _, _ in begun:
            carried = self.carried.setdefault(ordinal, Split())
            carried.add_segments(within(segments, starts, start, end))
            carried.busy += _overlap(busy, begins, start, end)

    def _count(self, steps: list[_Step], segments: list[Segment], busy: list[tuple[int, int]]) -> None:
        starts = [segment[0] for segment in segments]
        begins = [stretch[0] for stretch in busy]
        for step in steps:
            start, end, num, ordinal, name, first, traced = step
            split = Split(1, end - start, _overlap(busy, begins, start, end))
            blank = end - start - self.take_carried(ordinal, split)
            blank -= split.add_segments(within(segments, starts, start, end))
            traced = min(traced, blank)
            split.parts[TRACING] += traced
            split.parts[OTHER] += blank - traced
            self.split(name, first).merge(split)
            self.passed(name, num, ordinal, start, split)

    def take_carried(self, ordinal: int, split: Split) -> int:
        """Count the settled part of a step that is over now; returns its ns."""
        carried = self.carried.pop(ordinal, None)
        if carried is None:
            return 0
        split.merge(carried)
        return sum(carried.parts)

    def split(self, name: int, first: bool) -> Split:
        return (self.first if first else self.splits).setdefault(name, Split())


def stretched(samples: list[SampleSpan], holes: list[HoleRow]) -> list[SampleSpan]:
    """Samples extended over the hole they lie in: each up to the next sample, the first back to the hole's begin."""
    if not samples or not holes:
        return samples
    found: list[SampleSpan] = []
    ends = [hole[1] for hole in holes]
    for position, one in enumerate(samples):
        start, end, seen = one
        earlier = found[-1].end if found else -FOREVER
        later = samples[position + 1].start if position + 1 < len(samples) else FOREVER
        nth = bisect_right(ends, start)
        if nth < len(holes) and holes[nth][0] < start:
            start = max(holes[nth][0], min(earlier, start))
        nth = bisect_left(ends, end)
        if nth < len(holes) and holes[nth][0] < end:
            end = max(end, min(holes[nth][1], later))
        found.append(SampleSpan(start, end, seen))
    return found


def _overlap(busy: list[tuple[int, int]], begins: list[int], start: int, end: int) -> int:
    """ns of ``[start, end)`` in ``busy``, which is sorted; ``begins``: where its stretches begin."""
    ns = 0
    first = bisect_right(begins, start)
    for begin, stop in busy[first - 1 if first else 0 : bisect_left(begins, end, first)]:
        if begin < start:
            begin = start
        if stop > end:
            stop = end
        if stop > begin:
            ns += stop - begin
    return ns
