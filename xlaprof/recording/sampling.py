"""Long recordings leave out the detail of steps that are like the steps before them.

These steps are written in full: the first 50 of each name, every remarkable one (it compiled, broke a graph, raised,
read or fell back at a place where no step had before, or took half as long again as the median), and a thinning sample
of the ordinary ones: steps 10, 20, ... 90, 100, 200, ... Any other step becomes one
:class:`~xlaprof.events.StepDigest`, which sums its events: totals stay exact.

The end of a step decides. Until then its events are held, at most 60 ms (a killed program loses no more than that)
and at most 4,096 of them: a step that outgrows either is written in full. An inner
step is decided before the outer one, which is written in full up to where the inner one begins. While steps of two
threads overlap, everything is written.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from xlaprof.events import (
    Barrier,
    Compile,
    Compiling,
    CudaGraph,
    Device,
    Dropped,
    DynamoCompile,
    DynamoLimit,
    Evicted,
    Execute,
    Fallback,
    GeneratedCode,
    GraphBreak,
    JitCompile,
    NoCudaGraph,
    Recompile,
    Scope,
    Step,
    StepDigest,
    Text,
    Thread,
    TransferFromDevice,
)

from .code_folder import NewCode
from .intern import NewStack

WARM_UP = 50
HOLD_NS = 60_000_000
HOLD_EVENTS = 4_096
SLOW = 1.5
_MEDIAN_OF = 101

_REMARKABLE = frozenset(
    {
        Compiling,
        Compile,
        GraphBreak,
        DynamoCompile,
        Recompile,
        DynamoLimit,
        CudaGraph,
        NoCudaGraph,
        GeneratedCode,
        JitCompile,
        Evicted,
        Dropped,
        Device,
    }
)

Put = Callable[[Any], None]


class StepOpened(msgspec.Struct, frozen=True, gc=False):
    """In the queue only, never in a log: a ``StepTrace`` was entered on thread ``tid`` at ``t``."""

    t: int
    tid: int


#: kinds that give others an id, or belong to no step; and kinds that begin and end a step
DEFINING = frozenset({NewStack, NewCode, Text, Thread})
_APART = DEFINING | {StepOpened, Step}


class Sampler:
    """Takes every event of a recording in order and passes on the events to write."""

    def __init__(self) -> None:
        self._open: list[StepOpened] = []
        self._held: list[Any] = []
        self._step: StepOpened | None = None  # whose events are held
        self._usual: dict[int, _Usual] = {}  # by step name
        self._owed = 0  # ns of a watched device's work that were told after the step that they were done in
        self._sites: set[tuple[type, int, int]] = set()  # where steps read and fell back: kind, stack, op

    @property
    def held_until(self) -> int:
        """When :meth:`tick` writes the events of an open step that are held, in ns; 0 where none is open."""
        return self._step.t + HOLD_NS if self._step is not None else 0

    def feed(self, events: list[Any], put: Put, define: Put) -> None:
        """Take the next events. Definitions of ids go to ``define`` at once: held events may name them."""
        hold = self._held.append
        room = HOLD_EVENTS - len(self._held)
        for event in events:
            kind = type(event)
            if kind not in _APART and self._step is not None:
                hold(event)
                room -= 1
                if room > 0:
                    continue
                self.release(put)
            elif kind in DEFINING:
                define(event)
                continue
            elif kind is StepOpened:
                self._begin(event, put)
            elif kind is Step:
                self._end(event, put)
            else:
                self._is_news(event)
                put(event)
                continue
            hold = self._held.append
            room = HOLD_EVENTS - len(self._held)

    def tick(self, now: int, put: Put) -> None:
        """Write events held for too long; ``now`` is ``time.perf_counter_ns()``."""
        if self._step is not None and now - self._step.t >= HOLD_NS:
            self.release(put)

    def release(self, put: Put) -> None:
        """Write everything held, and the rest of its step too."""
        held, self._held, self._step = self._held, [], None
        for event in held:
            self._is_news(event)
            put(event)

    def _begin(self, opened: StepOpened, put: Put) -> None:
        if self._step is not None:
            self.release(put)
        self._open.append(opened)
        if len(self._open) == 1 or all(other.tid == opened.tid for other in self._open):
            self._step = opened

    def _end(self, step: Step, put: Put) -> None:
        t, tid = step.t, step.tid
        opened = self._step
        held = self._held if opened is not None and opened.t == t and opened.tid == tid else None
        if held is not None and len(self._open) == 1:
            self._open.clear()
        elif StepOpened(t, tid) in self._open:
            # later steps of this thread that never ended are dropped with it
            self._open = [other for other in self._open if other.tid != tid or other.t < t]
        usual = self._usual.get(step.name)
        if usual is None:
            usual = self._usual[step.name] = _Usual()
        ordinary = usual.is_ordinary(step.dur)
        sampled = usual.is_sampled()
        if held is None:
            self.release(put)
            put(step)
            return
        self._held, self._step = [], None
        news, rest, digest = self._sum(step, held)
        if not ordinary or sampled or step.error or news:
            for event in held:
                put(event)
            put(step)
        else:
            for event in rest:
                put(event)
            put(digest)

    def _sum(self, step: Step, held: list[Any]) -> tuple[bool, list[Any], StepDigest]:
        """Whether ``held`` has news, its events that cannot be summed, and the sum of the others and ``step``.

        Spelled out: this is most of the writer's work on a steady step.
        """
        news = False
        rest: list[Any] = []
        executions = busy = watched = tracing = barriers = 0
        scopes: dict[int, list[int]] = {}
        reads: dict[str, list[int]] = {}
        fallbacks: dict[str, list[int]] = {}
        for event in held:
            kind = type(event)
            if kind is Scope:
                if event.error or event.stack:
                    news = True
                dur = event.dur
                triple = scopes.get(event.name)
                if triple is None:
                    scopes[event.name] = [1, dur, dur]
                else:
                    triple[0] += 1
                    triple[1] += dur
                    if dur > triple[2]:
                        triple[2] = dur
            elif kind is Execute:
                if event.error:
                    news = True
                executions += 1
                if event.program:
                    busy += event.end - event.start
                elif not event.device:
                    watched += event.end - event.start
            elif kind is Barrier:
                barriers += 1
                tracing += event.tracing
            elif kind is TransferFromDevice or kind is Fallback:
                news = self._is_news(event) or news
                _add(reads if kind is TransferFromDevice else fallbacks, f"{event.stack}:{event.op}", event.dur)
            else:
                news = kind in _REMARKABLE or news
                rest.append(event)
        if watched or self._owed:
            # a device that is watched is told of now and then, in steps that are shorter than what is told
            watched += self._owed
            self._owed = max(0, watched - max(0, step.dur - busy))
            busy += watched - self._owed
        digest = StepDigest(
            step.name,
            step.num,
            step.t,
            step.dur,
            step.tid,
            executions,
            busy,
            tracing,
            barriers,
            {str(name): triple for name, triple in scopes.items()},
            reads,
            fallbacks,
        )
        return news, rest, digest

    def _is_news(self, event: Any) -> bool:
        """Whether the event makes its step remarkable; a place does so once."""
        kind = type(event)
        if kind is TransferFromDevice or kind is Fallback:
            site = (kind, event.stack, event.op)
            if site in self._sites:
                return False
            self._sites.add(site)
            return True
        if kind is Scope:
            return bool(event.error or event.stack)  # only the first scope of a name has its place
        if kind is Execute:
            return bool(event.error)
        return kind in _REMARKABLE


class _Usual:
    """The steps of one name so far: how many, and the median of the last durations."""

    __slots__ = ("_count", "_decade", "_recent", "_sorted")

    def __init__(self) -> None:
        self._count = 0
        self._decade = 10
        self._recent: deque[int] = deque()
        self._sorted: list[int] = []

    def is_ordinary(self, dur: int) -> bool:
        """Count a step: whether it is past the warm-up and not much slower than those before it."""
        self._count += 1
        ordered = self._sorted
        slow = bool(ordered) and dur > SLOW * ordered[len(ordered) // 2]
        if len(self._recent) == _MEDIAN_OF:
            del ordered[bisect_left(ordered, self._recent.popleft())]
        self._recent.append(dur)
        insort(ordered, dur)
        return self._count > WARM_UP and not slow

    def is_sampled(self) -> bool:
        """Whether the step just counted is one of the 9 of its decade: 10, 20, ... 90, 100, 200, ..."""
        if self._count == 10 * self._decade:
            self._decade = self._count
        return self._count % self._decade == 0


def _add(sums: dict[str, list[int]], key: str, dur: int) -> None:
    triple = sums.get(key)
    if triple is None:
        sums[key] = [1, dur, dur]
    else:
        triple[0] += 1
        triple[1] += dur
        triple[2] = max(triple[2], dur)
