"""From the log to snapshots: follows the file, folds its events into a Run, and makes reports from the Run.

There are no widgets and no threads here: :meth:`Feed.advance` does a bounded piece of work and returns a snapshot.
"""

from __future__ import annotations

import contextlib
import glob
import math
import os
import time
from collections import deque
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from xlaprof.analysis.model import Finding, Report
from xlaprof.analysis.run import Run
from xlaprof.analysis.summary import activity, summarize
from xlaprof.analysis.views.course import Bar
from xlaprof.analysis.views.details import Details, details, unix_s
from xlaprof.analysis.views.moment import Moment
from xlaprof.analysis.views.painting import Painting, View
from xlaprof.analysis.whatif.replay import Sample, WhatIf
from xlaprof.collection import no_collection
from xlaprof.columns import LONG, present
from xlaprof.events import NEWS, AnyEvent, Header
from xlaprof.log import Follower, LogError, Tail
from xlaprof.tui import process
from xlaprof.tui.glimpse import Unread, last_step
from xlaprof.tui.history import History
from xlaprof.tui.snapshot import Link, Process, Snapshot

#: Bytes of the log between two looks at the clock: some 50,000 events, about 0.2 s. Smaller slices take longer in all.
SLICE = 1 << 22
#: Seconds that one :meth:`Feed.advance` may take.
BUDGET_S = 0.4
#: Events kept to be shown as they are.
RECENT = 2_000
#: Seconds without an event after which a log is not expected to grow.
_GROWS_S = 2.0
#: Events of one slice of a log that grows fast.
_MANY = 1_000
#: While a long log is read, the time between two reports is so many times what one takes.
_PATIENCE = 24
#: The same, at most, at the end of a log that grows. Reports of news rest a 60th of it, so half of the time is the most
#: that they take.
REST = 60.0
#: Seconds, at least, between two reports without news, for who looks more often than that,
CALM_S = 0.2
#: and the share of a core that the process takes: what reading, drawing and all else leave of it, reports may have.
SHARE = 0.1


class Feed:
    """Follows the log at ``path``. Not for use by two threads at once, but for :meth:`paint` and :meth:`moment`.

    ``clock`` gives unix time in seconds. It may jump, so it says only how old an event is when it is read; all else is
    measured with ``monotonic``. One :meth:`advance` reads slices of ``slice_bytes``, at least one, until
    ``budget_s`` is spent or the log ends.
    """

    #: seconds of the monotonic clock, at least, between two reports: who is not looked at need not be told at once
    pause_s = 0.0

    def __init__(
        self,
        path: str,
        clock: Callable[[], float] = time.time,
        budget_s: float = BUDGET_S,
        slice_bytes: int = SLICE,
        tail: Follower | None = None,
        rest: float = 0.0,
        calm_s: float = 0.0,
        share: float = 0.0,
        monotonic: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        """``rest``: the time between two reports at the end of the log is so many times what one takes, and at least
        ``calm_s``; where something has been compiled a 60th of the first. ``share``: less than that, where the process
        has taken less than this share of a core (``cpu``: its seconds) since the last one began; 0: never."""
        self.path = path
        self._calm_s, self._share = calm_s, share
        self._monotonic, self._cpu = monotonic, cpu
        self.rest = rest
        self._clock = clock
        self.budget_s = budget_s
        self._slice_bytes = slice_bytes
        self._tail = tail or Tail(path)
        self._unread = Unread(path)
        self._header: Header | None = None
        self._report: Report | None = None
        self._read = 0  # bytes
        self._total = 0
        self._history = History()
        self._details = Details()
        self._recent: deque[Sequence[AnyEvent]] = deque()  # the last batches, with RECENT events at least
        self._latest: Report | None = None  # with the events behind each finding
        self._grew: dict[str, tuple[int, int]] = {}  # id of a finding -> its count, and the step at which that grew
        self._fresh: frozenset[str] = frozenset()
        self._sample: Sample | None = None  # from which the last report has its predictions; it
        self._provisional = False  # was of an earlier moment
        self._news = False  # something has been compiled since the last report,
        self._stale = False  # or some other event has come,
        self._reported_s = 0.0  # which took this long, and
        self._reported_at = 0.0  # when it was made; both of the monotonic clock
        self._taken = 0.0  # what the process had taken when it began
        self._grew_at = monotonic()
        self._late_s = 0.0  # how old the last event was then
        self._whole_at = -math.inf  # when the log was last read to its end
        self._restarts = 0
        self._trouble = ""

    def open(self) -> None:
        """Read the first slice. Raises :class:`LogError` where ``path`` is something else than a growing log."""
        first = b""
        with contextlib.suppress(OSError), open(self.path, "rb") as file:  # the tail says why it cannot be read
            first = file.read(2)
        if first == b"\x1f\x8b" and isinstance(self._tail, Tail):
            raise LogError(f"{self.path} is compressed and grows no more: xlaprof report {self.path}")
        self._slice()
        # of what has no line feed the tail waits for the end of the first line
        if self._header is None and self._read and first[:1] not in (b"", b"{") and isinstance(self._tail, Tail):
            raise LogError(f"{self.path} is not an xlaprof log: its first line is no header")

    def close(self) -> None:
        """Close the file."""
        self._tail.close()

    @no_collection()
    def advance(self) -> Snapshot:
        """Read what has been written since the last call, within the time budget."""
        # Before the log is read: the last events of a process are shown before it is called lost.
        fate = self._process()
        until = self._monotonic() + self.budget_s
        try:
            fresh = self._slice()
            while self._read < self._total and self._monotonic() < until:
                fresh |= self._slice()
            self._trouble = ""
        except LogError as error:
            fresh, self._trouble = False, str(error)
            self._tail.close()  # the next poll opens the file again
        self._stale |= fresh
        if self._header is not None and (self._report is None or self._worth_a_report()):
            sample = self._sample if self._grows() else None
            began, self._taken = self._monotonic(), self._cpu()
            settled = self._history.run.settled()
            what_if = WhatIf(settled, sample)
            self._latest = summarize(settled, self.path, self._tail.notes, None, what_if)
            self._sample, self._provisional = what_if.kept, what_if.is_provisional
            self._report = plain(self._latest)
            self._details = details(settled, self._history.uploads)
            self._history.settle(self._main_steps(), settled)
            self._note_growth(self._report)
            self._reported_at = self._monotonic()
            self._reported_s, self._stale, self._news = self._reported_at - began, False, False
        run, quiet_s = self._history.run, self._monotonic() - self._grew_at
        if self.complete and self._header is not None:
            self._whole_at = self._grew_at + quiet_s
        return Snapshot(
            path=self.path,
            link=self._link(),
            report=self._report,
            activity=activity(run) if self._report is not None and run.following is None else None,
            since_s=self._late_s + quiet_s,
            read=self._read,
            total=self._total,
            process=fate,
            quiet_s=quiet_s,
            restarts=self._restarts,
            trouble=self._trouble,
            ranks=_ranks(self.path) if self._link() == "absent" else (),
            details=self._details,
            course=self._history.course,
            recent=self._last(),
            cwd=self._header.cwd if self._header is not None else "",
            last={id: step for id, (_, step) in self._grew.items() if step >= 0},
            fresh=self._fresh,
        )

    def _last(self) -> tuple[AnyEvent, ...]:
        """The last events; only they are kept."""
        held: list[AnyEvent] = []
        while self._recent and len(held) < RECENT:
            held[:0] = self._recent.pop()[len(held) - RECENT :]
        self._recent = deque([held])
        return tuple(held)

    @property
    def complete(self) -> bool:
        """Whether all that was written is known."""
        return self._read >= self._total

    def _main_steps(self) -> str:
        return self._report.steps[0].name if self._report is not None and self._report.steps else ""

    def _worth_a_report(self) -> bool:
        """A long log is read first: until its end is reached, reports take a small part of the time."""
        if not self._stale and (not self._provisional or self._grows()):
            return False
        since = self._monotonic() - self._reported_at
        if self._read < self._total:
            least = _PATIENCE * self._reported_s
        elif self._news:
            least = self.rest / REST * self._reported_s
        else:
            least = self.rest * self._reported_s
            if self._share:
                least = min(least, (self._cpu() - self._taken) / self._share)
            least = max(self._calm_s, least)
        return since >= max(self.pause_s, least)

    def _grows(self) -> bool:
        """Whether more is to be expected soon: predictions need not be made anew for a moment that passes."""
        return self._history.run.end is None and self._monotonic() - self._grew_at < _GROWS_S

    def _slice(self) -> bool:
        """Feed the Run the next slice; True if there was something in it."""
        try:
            self._total = os.stat(self.path).st_size
        except OSError:
            self._total = self._read  # there is no file; the tail knows whether that is an error
        events = self._tail.poll(self._slice_bytes)
        if self._tail.header is not self._header:
            self._begin()
        # A poll takes a whole slice unless it meets the end of the file. What is compressed is longer than its file.
        ended = getattr(self._tail, "ended", None)
        most = self._total if ended is not False else self._total - 1
        self._read = self._total if ended else min(self._read + self._slice_bytes, most)
        if self._header is not None:
            if len(events) >= _MANY:
                self._history.run.long = True  # as many will follow: they are worth the import of numpy
            self._history.feed(events, self._read / max(self._total, 1))
        self._recent.append(events)
        while sum(map(len, self._recent)) - len(self._recent[0]) >= RECENT:
            self._recent.popleft()
        if events:
            self._grew_at = self._monotonic()
            age_s = self._clock() - unix_s(self._history.run, self._history.run.last)
            self._late_s = max(0.0, min(age_s, self._grew_at - self._whole_at))
            self._news = self._news or not NEWS.isdisjoint(present(events))
        return bool(events)

    def _begin(self) -> None:
        """Start over: the tail has its first header, or that of another run in the same file."""
        if self._header is not None:
            self._restarts += 1
            self._read = 0
        self._header = self._tail.header
        self._history = History(long=self._total > LONG)
        self._report = self._latest = self._sample = None
        self._provisional = False
        self._details = Details()
        self._reported_at = 0.0  # of this run there is no report yet
        self._whole_at = -math.inf
        self._recent.clear()
        self._grew.clear()

    def glimpse(self) -> int | None:
        """The number of the last step in the log, whether it was read or not; from any thread."""
        return last_step(self.path) if isinstance(self._tail, Tail) else None

    def waits(self) -> bool:
        """Whether what was written since may be read later; from any thread."""
        return isinstance(self._tail, Tail) and self._report is not None and self._unread.may_wait(self._read)

    def paint(self, view: View) -> Painting | None:
        """A view of the timeline as far as it was read; from any thread."""
        return self._history.paint(view)

    def moment(self, bar: Bar) -> Moment | None:
        """What is known of a step; from any thread."""
        report = self._report
        return self._history.moment(bar, self._details, report.findings) if report is not None else None

    def finding(self, id: str) -> tuple[Finding, Report, Run] | None:
        """A finding of the latest report with the events behind it, and what it is a finding of."""
        report = self._latest
        found = next((one for one in report.findings if one.id == id), None) if report is not None else None
        return (found, report, self._history.run) if found is not None and report is not None else None

    def _note_growth(self, report: Report) -> None:
        """Note the step at which each finding was last seen to happen again."""
        following = self._read >= self._total and bool(self._grew or self._reported_at)
        known = self._grew.keys()
        self._fresh = frozenset(one.id for one in report.findings if one.id not in known) if following else frozenset()
        for one in report.findings:
            if one.count != self._grew.get(one.id, (0, 0))[0]:
                # of what the log held already it is not known when it happened last
                self._grew[one.id] = one.count, report.activity.step if following else -1

    def _link(self) -> Link:
        if self._trouble:
            return "unreadable"
        if not os.path.exists(self.path):
            return "absent" if self._report is None else "removed"
        return "catching up" if self._read < self._total else "following"

    def _process(self) -> Process:
        header = self._tail.header
        return process.look(header.pid, header.host, header.unix_ns / 1e9) if header else "unknown"


def plain(report: Report) -> Report:
    """``report`` as a plain value: nobody asks the screen for the events behind a finding."""
    return replace(report, findings=tuple(replace(finding, counted=None) for finding in report.findings))


def _ranks(path: str) -> tuple[str, ...]:
    """The logs that several ranks write where one process would write ``path``: run.rank0.log, run.rank1.log..."""
    stem, extension = os.path.splitext(path)
    return tuple(sorted(glob.glob(f"{glob.escape(stem)}.rank*{glob.escape(extension)}")))
