"""When the steps are looked up in which findings happened: the whole log is read for that."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from xlaprof.analysis.model import Report
from xlaprof.analysis.occurrences import MOST

#: Seconds between two looks, and how many times as long as one takes, where a finding is new,
_NEW_S, _NEW_REST = 5.0, 60
#: and where those that were looked up have only happened again.
_AGAIN_S, _AGAIN_REST = 20.0, 240


class Marking:
    """Whether it is time to look; :meth:`begin` and :meth:`end` are told of each look."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: dict[str, int] = {}  # by id of a finding, when it was looked the last time
        # not before these moments of the clock: for a new finding, and where known ones only happened again
        self._due = self._due_again = 0.0
        self._began = 0.0

    def is_due(self, report: Report) -> bool:
        """Whether there is something to be found that was not, and the last look is long enough ago."""
        counts = self._of(report)
        due = self._due_again if counts.keys() <= self._counts.keys() else self._due
        return self._clock() >= due and counts != self._counts

    def begin(self, report: Report) -> None:
        """One looks now."""
        self._counts, self._began = self._of(report), self._clock()
        self._due = self._due_again = math.inf

    def end(self) -> None:
        """That was done."""
        now = self._clock()
        took = now - self._began
        self._due = now + max(_NEW_S, _NEW_REST * took)
        self._due_again = now + max(_AGAIN_S, _AGAIN_REST * took)

    @staticmethod
    def _of(report: Report) -> dict[str, int]:
        """How often each finding happened; further times than the first ones are not marked."""
        return {one.id: min(one.count, MOST) for one in report.findings}
