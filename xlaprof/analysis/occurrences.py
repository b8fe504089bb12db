"""When a finding happened: the events it counts, found again in the recording, each in its step."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from xlaprof.analysis.fold.fold import Fold
from xlaprof.analysis.model import Finding, Moment
from xlaprof.columns import of_kinds
from xlaprof.events import AnyEvent, Header, Stack, Step, StepDigest, Text

MOST = 1_000  # kept one by one; further ones are only counted
PARTS = 60  # the recording is divided into so many; occurrences are counted in each
_NESTED = 16  # steps in one another, at most
_STEPS = frozenset({Step, StepDigest})

Batch = Sequence[AnyEvent]


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


class StepTimes:
    """When each step began and ended: noted when a recording is read for the first of several findings."""

    def __init__(self) -> None:
        self.noted = False  # all of them
        self._spans: list[tuple[int, int, int]] = []  # end, begin, number
        self._ends: list[int] = []

    def noting(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Passes the events on, and notes the steps among them."""
        for batch in batches:
            columns = getattr(batch, "columns", None)  # of lines of a log
            if columns is None:
                self._spans += [(one.t + one.dur, one.t, one.num) for one in of_kinds(batch, _STEPS)]
            else:
                for kind in _STEPS:
                    some = columns.kinds[kind]
                    self._spans += zip(some.end.tolist(), some["t"].tolist(), some["num"].tolist(), strict=True)
            yield batch
        self._spans.sort()
        self._ends = [end for end, _, _ in self._spans]
        self.noted = True

    def at(self, moment: int) -> int | None:
        """The number of the step around a moment, the innermost of several."""
        position = bisect_right(self._ends, moment)
        ahead = self._spans[position : position + _NESTED]
        return next((number for _, begin, number in ahead if begin <= moment), None)


def occurrences(batches: Iterable[Batch], run: Fold, finding: Finding, steps: StepTimes | None = None) -> Occurrences:
    """The times that ``finding`` happened in the recording ``batches``, of which ``run`` is the analysis.

    ``steps``: to be used for several findings of one recording.
    """
    begin = run.begin or 0
    wall = max(1, run.last - begin)
    first: list[Moment] = []
    parts = [0] * PARTS
    total = 0
    steps = steps or StepTimes()
    remaining = iter(batches if run.since_step is None else _since(batches, run.since_step))
    if not steps.noted:
        remaining = steps.noting(remaining)
    for one in finding.counted.among(remaining) if finding.counted is not None else ():
        total += one.count
        parts[max(0, min(PARTS - 1, (one.t - begin) * PARTS // wall))] += one.count
        if len(first) < MOST:
            first.append(one)
    if not steps.noted:
        deque(remaining, maxlen=0)
    return Occurrences(
        total,
        tuple(
            Occurrence((one.t - begin) / 1e9, one.dur / 1e9, steps.at(one.t), one.count, one.detail)
            for one in sorted(first)
        ),
        tuple(parts),
        wall / 1e9,
    )


def _since(batches: Iterable[Batch], step: int) -> Iterator[Batch]:
    """The events that an analysis since a step counts (:class:`~xlaprof.analysis.fold.fold.Fold`)."""
    held: list[AnyEvent] = []  # since the last step: they may belong to step ``step``
    waiting = True
    for batch in batches:
        if not waiting:
            yield batch
            continue
        counted: list[AnyEvent] = []
        for event in batch:
            if not waiting or isinstance(event, Text | Stack | Header):
                counted.append(event)
            elif not isinstance(event, Step | StepDigest):
                held.append(event)
            else:
                waiting = event.num < step - 1
                if event.num >= step:
                    counted += [one for one in held if getattr(one, "t", event.t) >= event.t]
                    counted.append(event)
                held.clear()
        yield counted
