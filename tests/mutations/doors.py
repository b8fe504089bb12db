"""Every way in which a log is read and shown, and what must hold whichever log it is."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import xlaprof
from xlaprof.cli import main
from xlaprof.errors import UserError
from xlaprof.events import Event
from xlaprof.log import LogReader
from xlaprof.tui import panels
from xlaprof.tui.feed import Feed
from xlaprof.tui.panels.findings import FindingDetail
from xlaprof.tui.snapshot import status
from xlaprof.tui.widgets.panel import Panel

from .as_columns import told

WIDTHS = ("0", "1", "7", "40", "80", "200", "9999999", "x")
CPU_S = 60  # a reader that takes so long hangs: it takes 0.02 s
LIMITS = (
    "--no-config", "--max-recompiles=0", "--max-compiles=0", "--max-compile-time=1ms", "--max-transfers-per-step=0",
    "--max-graph-breaks=0", "--max-idle=1%", "--max-step-time=1ms", "--max-memory=1KB", "--no-fallback",
    "--fail-on=low",
)  # fmt: skip


class Hang(BaseException):
    """Not an Exception: nothing may catch it."""


class Outcome(NamedTuple):
    code: int
    output: str


def _run(*argv: str) -> Outcome:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(argv)
    assert code in (0, 1, 2), f"exit code {code}: {out.getvalue()[-500:]}"
    if code == 2:
        assert out.getvalue().rpartition("\nxlaprof: ")[2] or out.getvalue().startswith("xlaprof: ")
    return Outcome(code, out.getvalue())


def _verb(*argv: str) -> Callable[[str, str], Outcome]:
    return lambda log, other: _run(*(one.format(log=log, other=other) for one in argv))


def _explain(*more: str) -> Callable[[str, str], Outcome]:
    """Of the first, second or fifth finding: each log asks for one."""
    return lambda log, other: _run("explain", log, "125"[os.path.getsize(log) % 3], *more)


def _export(log: str, other: str) -> Outcome:
    out = f"{log}.export"
    try:
        outcome = _run("export", log, "--to", "tensorboard", "-o", out)
        written = sum(file.stat().st_size for file in Path(out).rglob("*") if file.is_file())
        return Outcome(outcome.code, outcome.output + " " * written)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _page(log: str, other: str) -> Outcome:
    out = Path(f"{log}.html")
    try:
        outcome = _run("report", log, "--html", str(out))
        return Outcome(outcome.code, outcome.output + (out.read_text("ascii") if out.exists() else ""))
    finally:
        out.unlink(missing_ok=True)


def _object(log: str, other: str) -> Outcome:
    try:
        report = xlaprof.report(log)
    except UserError as error:
        return Outcome(2, str(error))
    return Outcome(0, repr(report) + str(report) + report._repr_html_() + str(report.to_json()))


def _live(log: str, other: str) -> Outcome:
    """The model of the screen: what is on each panel of lines, without a terminal.

    :mod:`tests.tui.test_damaged` has damaged logs on the whole screen.
    """
    feed = Feed(log, clock=lambda: 1_700_000_000.0, slice_bytes=9_000)
    shown = []
    try:
        feed.open()
        for _ in range(3):
            snapshot = feed.advance()
            shown.append(str(status(snapshot)))
            if snapshot.report is not None:
                shown += _screen(snapshot.report, int(os.environ["COLUMNS"]))
    except UserError as error:
        return Outcome(2, str(error))
    finally:
        feed.close()
    return Outcome(0, "\n".join(shown))


def _screen(report: Any, width: int) -> Iterator[str]:
    for name, kind in panels.available().items():
        panel = kind(id=name)
        if isinstance(panel, Panel) and type(panel).pick is not Panel.pick:  # others want the whole snapshot
            data = panel.pick(report)
            yield from (panel.title(data), panel.note(data), *map(str, panel.lines(data, width)))
    detail = FindingDetail(id="detail")
    for finding in report.findings[:10]:
        yield from (detail.title(finding), detail.note(finding), *map(str, detail.lines(finding, width)))


def _read(log: str, other: str) -> Outcome:
    """Nothing is lost without a word: each line is an event, or counted in the notes."""
    try:
        reader = LogReader(log)
        events = list(reader)
    except UserError as error:
        return Outcome(2, str(error))
    assert all(isinstance(event, Event) for event in events)
    data = Path(log).read_bytes()
    if not data.startswith(b"\x1f\x8b"):
        lines = reader._lines
        missing = lines.garbage + sum(lines.unknown.values()) + sum(lines.refused.values()) + (lines.torn > 0)
        assert len(events) + missing == sum(bool(line.strip()) for line in data.split(b"\n"))
        assert bool(reader.notes) == bool(missing or lines.cut or lines.amiss or reader.header.schema > 1)
    return Outcome(0, "\n".join(reader.notes))


def _columns(log: str, other: str) -> Outcome:
    """Long logs are read as columns: that says what each line says."""
    once, each = (told(Path(log), columns) for columns in (True, False))
    assert once == each
    return Outcome(2 if isinstance(each, str) else 0, str(each))


DOORS: dict[str, Callable[[str, str], Outcome]] = {
    "read": _read,
    "report": _verb("report", "{log}"),
    "page": _page,
    "report --top 1000": _verb("report", "{log}", "--top", "1000", "--fail-on", "low"),
    "report --since-step": _verb("report", "{log}", "--since-step", "2", "--json"),
    "report --json": _verb("report", "{log}", "--json"),
    "explain": _explain(),
    "explain --json": _explain("--json"),
    "compare": _verb("compare", "{log}", "{other}", "--anyway"),
    "compare, the other way": _verb("compare", "{other}", "{log}", "--anyway"),
    "compare --json": _verb("compare", "{log}", "{other}", "--json", "--anyway"),
    "check": _verb("check", "{log}", *LIMITS),
    "check --github": _verb("check", "{log}", *LIMITS, "--github"),
    "check --json": _verb("check", "{log}", *LIMITS, "--json", "--after-step", "2"),
    "export": _export,
    "live": _live,
    "xlaprof.report()": _object,
    "columns": _columns,
}


@contextlib.contextmanager
def bounded_time() -> Iterator[None]:
    """Raise :class:`Hang` in code that computes for too long."""

    def hang(signum: int, frame: FrameType | None) -> None:
        raise Hang(f"{CPU_S} s")

    before = signal.signal(signal.SIGVTALRM, hang)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


class Calls:
    """Counts calls: work, whatever the machine."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Calls:
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _seen(self, frame: FrameType, event: str, argument: object) -> None:
        self.count += 1


def most_output(data: bytes) -> int:
    """Characters that may be shown of a log: the pages have a size of their own, and name some of it several times."""
    return 200_000 + 40 * len(data)


def go_through(door: str, log: Path, other: Path, width: str) -> Outcome:
    """Read ``log`` through one door. Raises whatever is wrong with it."""
    known = {name: os.environ.get(name) for name in ("COLUMNS", "XLAPROF_TRACEBACK")}
    os.environ.update(COLUMNS=width if door != "live" or width.isdecimal() else "80", XLAPROF_TRACEBACK="1")
    try:
        with bounded_time():
            outcome = DOORS[door](str(log), str(other))
    finally:
        for name, value in known.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return outcome
