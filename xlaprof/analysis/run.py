"""The public door of the analysis: events in; a :class:`Report` out, at any moment.

    run = Run()
    for event in log.read("run.log"):
        run.feed(event)
    report = run.report("run.log")

The report of a finished log, the live view of a growing one and a gate in CI all use it, so they agree. Runs of
several ranks or segments add up: ``run.merge(other)`` or ``run + other``.
"""

from __future__ import annotations

from collections.abc import Iterable

from .fold.fold import Fold
from .model import Report
from .summary import summarize
from .timeline.kept import KeptWindow


class Run(Fold):
    """A recording, analysed as it is read. Unknown events and a missing header are tolerated."""

    def report(self, path: str = "", notes: Iterable[str] = (), top: int | None = None) -> Report:
        """The report so far; feeding may go on afterwards. ``top``: the most findings to report."""
        return summarize(self.settled(), path, tuple(notes), top)


class KeptRun(Run):
    """A run that also keeps its steps and gaps, for those who draw them (:mod:`~xlaprof.analysis.timeline.kept`)."""

    window_type = KeptWindow
    window: KeptWindow

    def history(self) -> KeptWindow:
        """A twin of the window in which nothing is pending."""
        twin = self.window.copy()
        twin.settle(final=True)
        return twin
