"""When the steps are looked up in which findings happened: the whole log is read for that."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from xlaprof.analysis.model import Report
from xlaprof.analysis.occurrences import MOST

_EVERY_S, _REST = 5.0, 60  # between two times, and times as long as one takes


class Marking:
    """Whether it is time to look; :meth:`begin` and :meth:`end` are told of each look."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: dict[str, int] = {}  # by id of a finding, when it was looked the last time
        self._due = 0.0  # not before this moment of the clock
        self._began = 0.0

    def is_due(self, report: Report) -> bool:
        """Whether there is something to be found that was not, and the last look is long enough ago."""
        return self._clock() >= self._due and self._of(report) != self._counts

    def begin(self, report: Report) -> None:
        """One looks now."""
        self._counts, self._due, self._began = self._of(report), math.inf, self._clock()

    def end(self) -> None:
        """That was done."""
        now = self._clock()
        self._due = now + max(_EVERY_S, _REST * (now - self._began))

    @staticmethod
    def _of(report: Report) -> dict[str, int]:
        """How often each finding happened; further times than the first ones are not marked."""
        return {one.id: min(one.count, MOST) for one in report.findings}
