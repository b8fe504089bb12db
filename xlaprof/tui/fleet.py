"""The logs of all ranks in a folder: each is followed by a feed of its own, one of them is on the screen."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import closing

from msgspec.structs import replace

from xlaprof.analysis.model import Finding, Report
from xlaprof.analysis.run import Run
from xlaprof.analysis.views.course import Bar
from xlaprof.analysis.views.moment import Moment
from xlaprof.analysis.views.painting import Painting, View
from xlaprof.analysis.views.ranks import Member, Ranks, ranks
from xlaprof.errors import UserError
from xlaprof.events import Header
from xlaprof.log import Follower, LogError, Tail
from xlaprof.tui.feed import BUDGET_S, Feed
from xlaprof.tui.snapshot import Fleet, RankState, Snapshot, status

_HEAD = 1 << 18  # bytes of a log that have its header
_LOOK_S = 1.0  # between two looks at the folder
_PAUSE_S = 2.0  # between two reports of a rank that is not on the screen
_MOST = 256  # ranks: further ones are left out

#: what makes one program: the name of its logs without the rank's number, and the number of its processes
_Job = tuple[str, int]


class FleetFeed:
    """Follows every rank's log in ``folder``; logs that come later join. As :class:`Feed`, not for two threads at once.

    Of several programs in one folder, the one that began last is followed. ``opened`` opens a log by its path.
    ``rest``, ``calm_s``, ``share``: as of :class:`Feed`, for the rank on the screen, and for all others together.
    """

    def __init__(
        self,
        folder: str,
        opened: Callable[[str], Follower] = Tail,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        rest: float = 0.0,
        calm_s: float = 0.0,
        share: float = 0.0,
    ) -> None:
        self.folder, self._rest, self._calm_s, self._share = folder, rest, calm_s, share
        self._opened, self._clock, self._monotonic = opened, clock, monotonic
        self._headers: dict[str, Header] = {}  # of the logs in the folder, also of programs of one process
        self._feeds: dict[str, Feed] = {}  # by path
        self._seen: dict[str, Snapshot] = {}  # the latest of each
        self._chosen = ""
        self._job: _Job | None = None
        self._looked_at = -_LOOK_S
        self._compared: tuple[object, ...] = ()  # the reports behind
        self._ranks = Ranks()
        self._others = 0
        self._foreign: dict[str, tuple[int, int]] = {}  # files without a header -> size and time of change

    # -- what the UI asks of the one that is on the screen

    @property
    def path(self) -> str:
        """The log that is on the screen; the folder until there is one."""
        return self._chosen or self.folder

    def glimpse(self) -> int | None:
        """The number of the last step in its log; from any thread."""
        feed = self._feeds.get(self._chosen)
        return feed.glimpse() if feed is not None else None

    def paint(self, view: View) -> Painting | None:
        """A view of its timeline; from any thread."""
        feed = self._feeds.get(self._chosen)
        return feed.paint(view) if feed is not None else None

    def moment(self, bar: Bar) -> Moment | None:
        """What is known of one of its steps; from any thread."""
        feed = self._feeds.get(self._chosen)
        return feed.moment(bar) if feed is not None else None

    def finding(self, id: str) -> tuple[Finding, Report, Run] | None:
        """A finding of its latest report."""
        feed = self._feeds.get(self._chosen)
        return feed.finding(id) if feed is not None else None

    def choose(self, path: str) -> None:
        """Have this log on the screen from the next snapshot on."""
        if path in self._feeds:
            self._chosen = path

    # -- reading

    def open(self, wait: bool = True) -> None:
        """Look into the folder. Raises :class:`UserError` where it has recordings, but none of several ranks, and,
        unless it is to ``wait``, where it has none."""
        self._look()
        if not self._feeds and self._headers:
            raise UserError(f"{self.folder} has no logs of several ranks: name one of its logs, {min(self._headers)}")
        if not self._feeds and not wait:
            log = os.path.join(self.folder, "run.log")
            raise UserError(
                f"{self.folder} has no logs of ranks: record into it first (torchrun -m xlaprof run -o {log} script.py)"
            )

    def close(self) -> None:
        """Close all files."""
        for feed in self._feeds.values():
            feed.close()

    def advance(self) -> Snapshot:
        """Read on in all logs, within the time budget; a snapshot of the one on the screen, with the state of all."""
        if self._monotonic() - self._looked_at >= _LOOK_S:
            self._look()
        if not self._feeds:
            return Snapshot(self.folder, "absent", fleet=Fleet(self.folder))
        for path, feed in self._feeds.items():
            feed.budget_s = BUDGET_S / (2 if path == self._chosen else 2 * len(self._feeds))
            feed.pause_s = 0.0 if path == self._chosen else _PAUSE_S
            feed.rest = self._rest * (1 if path == self._chosen else len(self._feeds) - 1)
            self._seen[path] = feed.advance()
        self._compare()
        states = tuple(
            RankState(self._headers[path].rank, path, status(self._seen[path]), self._seen[path].report)
            for path in sorted(self._feeds, key=lambda path: (self._headers[path].rank, path))
        )
        fleet = Fleet(self.folder, states, self._ranks, self._others)
        reading = [one for one in self._seen.values() if one.link == "catching up"]
        shown = self._seen[self._chosen]
        if reading and shown.link == "following":  # the screen is not to wait before it reads on
            read, total = sum(one.read for one in reading), sum(one.total for one in reading)
            shown = replace(shown, link="catching up", read=read, total=max(read, total))
        return replace(shown, fleet=fleet)

    def read_all(self) -> Fleet:
        """Read all logs to their end."""
        while True:
            fleet = self.advance().fleet or Fleet(self.folder)
            if all(feed.complete for feed in self._feeds.values()):
                return fleet

    def _compare(self) -> None:
        members = [
            Member(one.path, one.report, one.course, one.details)
            for one in self._seen.values()
            if one.report is not None
        ]
        now = tuple((id(one.report), id(one.course)) for one in members)
        if now != self._compared:
            self._compared, self._ranks = now, ranks(members)

    def _look(self) -> None:
        """Take up the logs that have come since."""
        self._looked_at = self._monotonic()
        for path in self._files():
            if path not in self._headers and (header := self._header(path)) is not None:
                self._headers[path] = header
        jobs: dict[_Job, list[str]] = {}
        for path, header in self._headers.items():
            if header.world > 1:
                jobs.setdefault(_job(os.path.relpath(path, self.folder), header), []).append(path)
        if not jobs:
            return
        newest = max(jobs, key=lambda job: max(self._headers[path].unix_ns for path in jobs[job]))
        if newest != self._job:
            self.close()
            self._feeds, self._seen, self._chosen, self._job = {}, {}, "", newest
        self._others = len(jobs) - 1
        for path in sorted(jobs[newest])[:_MOST]:
            if path not in self._feeds:
                tail = self._opened(path)
                self._feeds[path] = Feed(path, self._clock, tail=tail, calm_s=self._calm_s, share=self._share)
        if not self._chosen:
            self._chosen = min(self._feeds, key=lambda path: (self._headers[path].rank, path))

    def _files(self) -> list[str]:
        """The regular files of the folder, and of the folders in it: launchers give each rank one of its own."""
        found = []
        try:
            for entry in os.scandir(self.folder):
                if entry.is_file():
                    found.append(entry.path)
                elif entry.is_dir():
                    found += [inner.path for inner in os.scandir(entry.path) if inner.is_file()]
        except OSError:  # a folder that goes while it is looked at
            return found
        return found

    def _header(self, path: str) -> Header | None:
        """The header of a log; None where the file is none, or has none yet. What has not changed is not read again."""
        try:
            now = os.stat(path)
        except OSError:  # it is gone by now
            return None
        try:
            if self._foreign.get(path) == (now.st_size, now.st_mtime_ns):
                return None
            with closing(Tail(path)) as tail:
                tail.poll(_HEAD)
                header = tail.header
        except (LogError, OSError):
            header = None
        if header is None:
            self._foreign[path] = now.st_size, now.st_mtime_ns
        return header


def _job(name: str, header: Header) -> _Job:
    """Logs of one program are called alike but for the number of the rank: run.rank0.log, run.rank1.log..."""
    number = rf"0*{header.rank}(?!\d)"
    found = [*re.finditer(f"(?<=rank){number}", name)] or [*re.finditer(rf"(?<!\d){number}", name)]
    if found:
        name = f"{name[: found[-1].start()]}*{name[found[-1].end() :]}"
    return name, header.world
