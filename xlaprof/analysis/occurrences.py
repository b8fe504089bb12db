"""When a finding happened: the events it counts, found again in the recording, each in its step."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from xlaprof.analysis.fold.fold import Fold
from xlaprof.analysis.model import Finding, Moment
from xlaprof.events import AnyEvent, Header, Stack, Step, StepDigest, Text

MOST = 1_000  # kept one by one; further ones are only counted
PARTS = 60  # the recording is divided into so many; occurrences are counted in each
_NESTED = 16  # steps in one another, at most


class Occurrence(msgspec.Struct, frozen=True):
    """One time a finding happened, or the recorded sum of several."""

    at_s: float  # since the beginning of the recording
    dur_s: float
    step: int | None  # None: in no named step
    count: int = 1
    detail: str = msgspec.field(name="told", default="")  # what changed: "f32[8,4] -> f32[5,4]"


class Occurrences(msgspec.Struct, frozen=True):
    """All occurrences of a finding. ``parts``: their number in each part of the recording, in order of time."""

    total: int
    first: tuple[Occurrence, ...]  # the first MOST
    parts: tuple[int, ...]
    wall_s: float


def occurrences(events: Iterable[AnyEvent], run: Fold, finding: Finding) -> Occurrences:
    """The times that ``finding`` happened in the recording ``events``, of which ``run`` is the analysis."""
    begin = run.begin or 0
    wall = max(1, run.last - begin)
    steps: list[tuple[int, int, int]] = []
    first: list[Moment] = []
    parts = [0] * PARTS
    total = 0
    remaining = _noting(events if run.since_step is None else _since(events, run.since_step), steps)
    for one in finding.counted.among(remaining) if finding.counted is not None else ():
        total += one.count
        parts[max(0, min(PARTS - 1, (one.t - begin) * PARTS // wall))] += one.count
        if len(first) < MOST:
            first.append(one)
    deque(remaining, maxlen=0)  # for the steps
    steps.sort()
    ends = [end for end, _, _ in steps]
    return Occurrences(
        total,
        tuple(
            Occurrence((one.t - begin) / 1e9, one.dur / 1e9, _step_at(one.t, steps, ends), one.count, one.detail)
            for one in sorted(first)
        ),
        tuple(parts),
        wall / 1e9,
    )


def _since(events: Iterable[AnyEvent], step: int) -> Iterator[AnyEvent]:
    """The events that an analysis since a step counts (:class:`~xlaprof.analysis.fold.fold.Fold`)."""
    held: list[AnyEvent] = []  # since the last step: they may belong to step ``step``
    waiting = True
    for event in events:
        if not waiting or isinstance(event, Text | Stack | Header):
            yield event
        elif not isinstance(event, Step | StepDigest):
            held.append(event)
        else:
            waiting = event.num < step - 1
            if event.num >= step:
                yield from (one for one in held if getattr(one, "t", event.t) >= event.t)
                yield event
            held.clear()


def _noting(events: Iterable[AnyEvent], steps: list[tuple[int, int, int]]) -> Iterator[AnyEvent]:
    """Passes the events on, and notes the end, begin and number of each step."""
    for event in events:
        if type(event) is Step or type(event) is StepDigest:
            steps.append((event.t + event.dur, event.t, event.num))
        yield event


def _step_at(moment: int, steps: list[tuple[int, int, int]], ends: list[int]) -> int | None:
    """The number of the step around a moment, the innermost of several."""
    position = bisect_right(ends, moment)
    ahead = steps[position : position + _NESTED]
    return next((number for _, begin, number in ahead if begin <= moment), None)
