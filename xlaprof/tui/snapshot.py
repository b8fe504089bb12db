"""The state of a run at one moment, as a frozen value: made by the feed, shown by the widgets."""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from xlaprof.analysis.model import Activity, Report
from xlaprof.analysis.views.course import Course
from xlaprof.analysis.views.details import Details
from xlaprof.analysis.views.ranks import Ranks
from xlaprof.events import AnyEvent
from xlaprof.text.quantities import duration, elapsed, percent, plural, size_text

#: The log: not there yet, being read, read to its end, deleted, or no log any more.
Link = Literal["absent", "catching up", "following", "removed", "unreadable"]
#: The process that writes it; unknown on another machine and before the header.
Process = Literal["alive", "gone", "unknown"]
Tone = Literal["quiet", "good", "busy", "warn", "bad"]


class Mark(msgspec.Struct, frozen=True):
    """A finding happened in a step."""

    step: int
    id: str
    severity: str


class Status(msgspec.Struct, frozen=True):
    """The state line: one word, details, and a colour."""

    word: str
    detail: str
    tone: Tone


class RankState(msgspec.Struct, frozen=True):
    """A rank as it stands."""

    rank: int
    path: str
    status: Status
    report: Report | None = None  # None: nothing was read yet


class Fleet(msgspec.Struct, frozen=True):
    """All ranks of one program, whose logs are in a folder."""

    folder: str
    states: tuple[RankState, ...] = ()
    ranks: Ranks = Ranks()
    others: int = 0  # recordings of other programs in the folder, which are left out


class Snapshot(msgspec.Struct, frozen=True):
    """The run as far as it has been read, and the state of the file."""

    path: str
    link: Link
    report: Report | None = None  # None: no header has been read yet
    activity: Activity | None = None  # what the program does, newer than the report; None: the report knows
    since_s: float = 0.0  # from the last event to now
    read: int = 0  # bytes of the log that have been read
    total: int = 0  # bytes that it holds
    process: Process = "unknown"
    quiet_s: float = 0.0  # since the log last grew
    restarts: int = 0  # times that another recording has replaced the log
    trouble: str = ""  # why it is unreadable
    ranks: tuple[str, ...] = ()  # while the log is absent: logs of ranks beside it
    details: Details = Details()
    course: Course = Course()
    recent: tuple[AnyEvent, ...] = ()  # the last events that were read, oldest first
    cwd: str = ""  # the directory the program ran in
    #: id of a finding -> the step at which its count was last seen to grow, while the log was followed
    last: dict[str, int] = {}
    fresh: frozenset[str] = frozenset()  # ids of findings that the snapshot before did not have
    fleet: Fleet | None = None  # None: one log is followed, not those of a folder


def status(snapshot: Snapshot) -> Status:
    """The state of the program that writes the log, in words."""
    report = snapshot.report
    if snapshot.link == "unreadable":
        return Status("unreadable", snapshot.trouble, "bad")
    if snapshot.link == "absent":
        what = f"{snapshot.path} to appear" if snapshot.fleet is None else f"ranks' logs in {snapshot.path}"
        return Status("waiting", f"for {what}", "quiet")
    if snapshot.link == "catching up" and snapshot.total > snapshot.read:
        share = percent(snapshot.read / snapshot.total)
        return Status("reading", f"{share} of {size_text(snapshot.total)}", "busy")
    if report is None:
        return Status("waiting", f"for the first event in {snapshot.path}", "quiet")

    run = report.run
    now = snapshot.activity or report.activity
    steps = sum(s.count for s in report.steps)
    if run.finished:
        took = duration(run.wall_s)
        ran = f"{plural(steps, 'step')} in {took}"
        gone = f"{snapshot.path} is gone; showing what was read" if snapshot.link == "removed" else ""
        if run.error:
            return Status("failed", _joined(f"{run.error} after {ran if steps else took}", gone), "bad")
        return Status("finished", _joined(ran if steps else f"in {took}", gone), "good")
    if snapshot.process == "gone" or now.state == "lost":
        at = f" after step {now.step}" if now.step >= 0 else ""
        return Status("lost", f"process {run.pid} ended without closing its log{at}", "bad")
    if snapshot.link == "removed":
        return Status("removed", f"{snapshot.path} is gone; showing what was read", "warn")

    # From the log's clock, and on from its last event.
    lasting = elapsed(now.since_s + snapshot.since_s)
    if now.state in ("compiling", "waiting"):
        after = f"after step {now.step}" if now.step >= 0 else ""
        word, tone = _LASTING[now.state]
        return Status(word, _joined(lasting, after, now.detail), tone)
    silent = f"nothing recorded for {elapsed(snapshot.quiet_s)}" if snapshot.quiet_s >= SILENT_S else ""
    total = report.steps[0].total if report.steps else 0
    step = f"step {now.step}" + (f" of {total}" if total else "") if now.step >= 0 else ""
    return Status(now.state, _joined(step, now.detail, silent), "good" if now.state == "running" else "quiet")


def goes_on(snapshot: Snapshot | None) -> bool:
    """Whether the program still runs, as far as is known."""
    ended = snapshot is not None and snapshot.report is not None and snapshot.report.run.finished
    return not ended and (snapshot is None or snapshot.process != "gone")


_QUIET_STEPS = 20  # steps without a finding that comes in each of them


def stopped(snapshot: Snapshot) -> frozenset[str]:
    """Ids of the findings that happen no more: for far longer than there was ever between two of them, on average."""
    report = snapshot.report
    if report is None or report.activity.step < 0:
        return frozenset()
    now = report.activity.step
    over = set()
    for finding in report.findings:
        last = snapshot.last.get(finding.id, now)
        if now - last > max(_QUIET_STEPS, 3 * (last + 1) // max(1, finding.count)):
            over.add(finding.id)
    return frozenset(over)


def steps_per_second(report: Report) -> float:
    """Of the last 20 steps; 0 where there are none."""
    recent = report.steps[0].recent_s[-20:] if report.steps else ()
    total = sum(recent)
    return len(recent) / total if total > 0 else 0.0


def left_s(snapshot: Snapshot) -> float | None:
    """Seconds until the last step, at the pace of the last ones; None where the program does not say how many steps it
    takes (``StepTrace(..., total=1000)``), or has ended."""
    report, bars = snapshot.report, snapshot.course.bars[-_PACED:]
    if report is None or not report.steps or len(bars) < 2 or status(snapshot).word not in _GOES_ON:
        return None
    stat, steps = report.steps[0], sum(bar.count for bar in bars[:-1])
    if not stat.last_num + 1 < stat.total:
        return None
    return (stat.total - stat.last_num - 1) * (bars[-1].start_s - bars[0].start_s) / steps


_PACED = 21  # bars
_GOES_ON = ("starting", "running", "compiling", "waiting for a read")
#: The state line mentions a log that has not grown for this long; few steps take longer.
SILENT_S = 10.0
_LASTING: dict[str, tuple[str, Tone]] = {"compiling": ("compiling", "busy"), "waiting": ("waiting for a read", "warn")}


def _joined(*parts: str) -> str:
    return " · ".join(part for part in parts if part)


def waiting(snapshot: Snapshot) -> str:
    """The message while there is no report to show."""
    if snapshot.link == "unreadable":
        return snapshot.trouble
    if snapshot.link != "absent":
        return f"{snapshot.path} is empty so far."
    if snapshot.fleet is not None:
        why = f"Waiting for logs of ranks in {snapshot.path}."
        log = os.path.join(snapshot.path, "run.log")
        do, how = "Start a program that records there:", f"torchrun -m xlaprof run -o {log} script.py"
    elif snapshot.ranks:
        why = f"{snapshot.path} does not exist, but {len(snapshot.ranks)} ranks' logs do."
        do, how = "Follow all of them:", f"xlaprof live {os.path.dirname(snapshot.path) or '.'}"
    else:
        why = f"Waiting for {snapshot.path}."
        do, how = "Start a program that records there:", f"xlaprof run -o {snapshot.path} script.py"
    return f"{why}\n\n{do}\n{how}"
