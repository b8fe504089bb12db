"""The lines at the top: the program and where it runs; its state, its pace, and how busy its device is."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import PurePath

from msgspec.structs import replace
from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from xlaprof.analysis.model import Report, RunInfo
from xlaprof.text.cells import bar, fit, shorten
from xlaprof.text.quantities import duration, elapsed, percent, plural
from xlaprof.tui.snapshot import Snapshot, Tone, left_s, status, steps_per_second
from xlaprof.tui.widgets.fitted import Fitted
from xlaprof.tui.widgets.panel import Line, line

TONES: dict[Tone, str] = {
    "quiet": "$text-muted",
    "good": "$text-success",
    "busy": "$text-primary",
    "warn": "$text-warning",
    "bad": "$text-error",
}
GLIMPSE_S = 0.1  # seconds between two looks at the last step alone
_BAR = 12  # cells of the device's bar


class StatusBar(Static, Fitted):
    """Program and device on the first line, the state on the second."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, markup=False)
        self._snapshot: Snapshot | None = None
        self._paused = False
        self._drawn: Line | None = None
        self._glimpsed = 0.0  # when it was looked for the last step, of the monotonic clock

    def show(self, snapshot: Snapshot, paused: bool) -> None:
        """Show the header and the state of the run; ``paused``: the panels are not updated."""
        self._snapshot, self._paused = snapshot, paused
        self._draw()

    def glimpse(self, last: Callable[[], int | None]) -> None:
        """While a report is made: show the step that is the ``last`` one now, if steps are what is shown."""
        shown = self._snapshot
        if time.monotonic() < self._glimpsed + GLIMPSE_S:
            return
        self._glimpsed = time.monotonic()
        if shown is None or shown.report is None or shown.link != "following" or shown.report.run.finished:
            return
        now = shown.activity or shown.report.activity
        if now.state == "running" and now.step >= 0 and (step := last()) is not None and step != now.step:
            self.show(replace(shown, activity=replace(now, step=step)), self._paused)

    def resized(self) -> None:
        self._draw()

    def _draw(self) -> None:
        width = self.content_size.width
        if self._snapshot is not None and width > 0:
            drawn = Content("\n").join([self._title(self._snapshot, width), self._state(self._snapshot, width)])
            if self._drawn is None or not drawn.is_same(self._drawn):  # it is drawn with each look at the log
                self._drawn = drawn
                self.update(drawn, layout=False)  # two lines, whatever they say

    def _title(self, snapshot: Snapshot, width: int) -> Line:
        run = snapshot.report.run if snapshot.report else None
        program = command(run) if run else PurePath(snapshot.path).name
        machine = f"  {device(run)}" if run else ""
        if cell_len(machine) > width // 2:
            machine = ""
        return line(
            ("xlaprof  ", "bold $text-primary"),
            (fit(program, width - 9 - cell_len(machine)), "bold"),
            (machine, "$text-muted"),
        )

    def _state(self, snapshot: Snapshot, width: int) -> Line:
        now = status(snapshot)
        badge = "  PAUSED, p resumes" if self._paused else ""
        notes = [] if snapshot.report is None else list(snapshot.report.run.notes)
        if snapshot.report and (lost := sum(snapshot.report.run.dropped.values())):
            notes.append(f"{plural(lost, 'event')} not written")
        if snapshot.restarts:
            notes.append("the log was begun anew")
        rest = max(0, width - 2 - cell_len(now.word) - 2 - len(badge))
        pace = _pace(snapshot.report, left_s(snapshot)) if snapshot.report else []
        noted = "".join(f"  ({n})" for n in notes)
        while pace and cell_len(now.detail) + cell_len(noted) + sum(cell_len(text) for text, _ in pace) > rest:
            pace.pop(0)
        beside = sum(cell_len(text) for text, _ in pace)
        detail = shorten(now.detail, rest)
        note = shorten(noted, max(0, rest - cell_len(detail) - beside))
        space = " " * max(0, rest - cell_len(detail) - cell_len(note) - beside)
        return line(
            ("● ", TONES[now.tone]),
            (now.word, f"bold {TONES[now.tone]}"),
            "  ",
            detail,
            (note, "$text-warning"),
            space,
            *pace,
            (badge, "bold $text-warning"),
        )


def _pace(report: Report, left: float | None) -> list[tuple[str, str]]:
    """At the right of the state: time since the start, steps a second, the device, what is left; the least first."""
    found = []
    if not report.run.finished:  # what has ended says how long it took
        found.append((f"  {duration(report.run.wall_s)}", "$text-muted"))
    pace = steps_per_second(report)
    if pace > 0:
        found.append((f"  {pace:.3g} steps/s", ""))
    idle = report.idle
    if idle.busy_s > 0:  # else no device was seen
        share = idle.busy_s / idle.window_s
        found.append((f"  device {fit(bar(share, _BAR), _BAR)} {percent(share)} busy", "$text-success"))
    if left is not None:
        found.append((f"  {elapsed(left)} left", "bold"))
    return found


def command(run: RunInfo) -> str:
    """The command line: "decoder.py --steps 50"."""
    if not run.argv:
        return f"process {run.pid}"
    return " ".join([PurePath(run.argv[0]).name, *map(shlex.quote, run.argv[1:])])


def device(run: RunInfo) -> str:
    """The device and process: "cpu · node7 · pid 4242 · rank 1/8"."""
    kind = run.device_kind if run.device_kind.lower() != run.platform else ""
    parts = [f"{run.device_count} × {kind or run.platform}" if run.device_count > 1 else kind or run.platform]
    parts += [run.host, f"pid {run.pid}"]
    if run.world > 1:
        parts.append(f"rank {run.rank}/{run.world}")
    return " · ".join(p for p in parts if p)
