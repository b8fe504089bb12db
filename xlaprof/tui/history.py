"""What is shown of the whole run: the totals of its report, its steps one by one, and its timeline."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from msgspec.structs import replace

from xlaprof.analysis.model import Finding
from xlaprof.analysis.run import KeptRun
from xlaprof.analysis.timeline.kept import KeptWindow
from xlaprof.analysis.views.course import Bar, Bars, Course, course
from xlaprof.analysis.views.details import Details, Uploads
from xlaprof.analysis.views.lanes import Lanes, feed_both
from xlaprof.analysis.views.moment import Moment, moment
from xlaprof.analysis.views.painting import Painting, View, paint
from xlaprof.events import AnyEvent


class History:
    """Events in; steps, and views of the timeline out. Other threads may call :meth:`paint` and :meth:`moment`.

    ``long``: many events will follow.
    """

    def __init__(self, *, long: bool = False) -> None:
        self.run = KeptRun(long=long)
        self.course = Course()
        self._bars = Bars()
        self._lanes = Lanes()
        self._window: KeptWindow | None = None  # settled
        self._painted: tuple[View, Painting] | None = None  # the latest stretch, without its cursor
        self._lock = Lock()  # between those who read on and those who paint

    def feed(self, events: Sequence[AnyEvent], share: float = 1.0) -> None:
        """Take events in. ``share``: how much of what is there of the recording is read with them."""
        with self._lock:
            self._painted = None
            for spans in (self._lanes.spans, self.run.window.idle.spans):
                spans.share = share
            feed_both(self.run, self._lanes, events)

    @property
    def uploads(self) -> Uploads:
        """By line."""
        return self._lanes.uploads

    def settle(self, name: str, settled: KeptRun) -> None:
        """Have the steps called ``name``, and the idle time, as far as events came. ``settled``: the run's twin."""
        with self._lock:
            self._window, self._painted = settled.window, None
        self.course = course(settled, name, self._bars)

    def moment(self, bar: Bar, details: Details, findings: Sequence[Finding]) -> Moment | None:
        """What is known of a step; None: nothing was settled yet. From any thread."""
        with self._lock:
            if self._window is None:
                return None
            names, begin = self.run.names, self.run.begin or 0
            return moment(bar, self._lanes, self._window, names, begin, details, findings)

    def paint(self, view: View) -> Painting | None:
        """A view of the timeline as far as it was settled; None: nothing was yet.

        All that is kept of the run is gone through once for each stretch: a cursor that moves leaves that as it is.
        """
        stretch = replace(view, row=0, cell=-1)
        with self._lock:
            if self._window is None:
                return None
            known = self._painted[1].lanes if self._painted is not None and self._painted[0] == stretch else None
            painting = paint(view, self._lanes, self._window, self.run, known)
            self._painted = stretch, painting
            return painting
