"""Say what went wrong in a recorded run: on which line, at what cost, and what to change.

    xlaprof report run.log
    xlaprof report run.log --since-step 10 --top 5
    xlaprof report run.log --json | jq .findings

Without steps to leave out, everything recorded counts; --since-step leaves out what came before that step, such
as warm-up. --fail-on makes the exit code 1 when there is a finding of at least that severity, for CI.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xlaprof.analysis.model import SEVERITIES, Report
from xlaprof.analysis.run import Run
from xlaprof.commands._loading import load
from xlaprof.errors import UserError
from xlaprof.events import AnyEvent
from xlaprof.text.quantities import size_text

FOUND = 1  # exit code under --fail-on
_PAGE = 10  # findings shown to people who did not say how many
_LONG = 8_000_000  # bytes: some hundred thousand events
_LARGE = 50_000_000  # bytes from which on progress is shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", help="a recording: run.log")
    parser.add_argument("--json", action="store_true", help="print JSON (docs/report-json.md)")
    parser.add_argument("--top", type=natural, metavar="N", help="show at most N findings (default: 10; all in JSON)")
    parser.add_argument("--since-step", type=natural, metavar="N", help="leave out everything before step N")
    parser.add_argument(
        "--fail-on",
        choices=["low", "medium", "high"],
        metavar="SEVERITY",
        help="exit with 1 if there is a finding of this severity (low, medium, high) or worse",
    )


def run(args: argparse.Namespace) -> int:
    report = analyse(args.log, since_step=args.since_step, show_progress=sys.stderr.isatty())
    most = args.top if args.top is not None or args.json else _PAGE
    shown = report if most is None else top(report, most)
    hidden = len(report.findings) - len(shown.findings)
    if args.json:
        from xlaprof.report.json import dumps

        sys.stdout.write(dumps(shown, hidden))
    else:
        from xlaprof.report.terminal import show

        show(shown, hidden)
    if args.fail_on is not None:
        counted = SEVERITIES[: SEVERITIES.index(args.fail_on) + 1]
        return FOUND if any(finding.severity in counted for finding in report.findings) else 0
    return 0


def analyse(path: str, since_step: int | None = None, show_progress: bool = False) -> Report:
    """The report of the log at ``path``. Raises :class:`UserError` when nothing could be read."""
    run, notes = fold(path, since_step, show_progress)
    with no_collection():
        return run.report(path, notes)


def fold(path: str, since_step: int | None = None, show_progress: bool = False) -> tuple[Run, tuple[str, ...]]:
    """The log at ``path``, analysed, and what the reader has to say. Raises :class:`UserError` like :func:`analyse`."""
    reader = load(path)
    size = os.path.getsize(path)
    run = Run(since_step=since_step, long=size > _LONG)
    events: Iterator[AnyEvent] = iter(reader)
    if show_progress and size > _LARGE:
        events = _with_progress(events, path)
    with no_collection():
        run.feed_all(events)
    if since_step is not None and run.waiting:
        raise UserError(
            f"{path} has no step {since_step} or later (the last one is {run.step_num}): name an earlier one"
            if run.step_num >= 0
            else f"{path} has no named steps, so --since-step {since_step} leaves nothing: leave the option out"
        )
    return run, reader.notes


@contextmanager
def no_collection() -> Iterator[None]:
    """Millions of events leave no cycles: looking for them costs a twentieth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def top(report: Report, count: int) -> Report:
    """The report with its ``count`` dearest findings only."""
    from msgspec.structs import replace

    return replace(report, findings=report.findings[:count])


def _with_progress(events: Iterator[AnyEvent], path: str) -> Iterator[AnyEvent]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    size = Path(path).stat().st_size
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[events]:,} events"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"reading {Path(path).name} ({size_text(size)})", total=None, events=0)
        for number, event in enumerate(events):
            if not number % 50_000:
                progress.update(task, events=number)
            yield event


def natural(text: str) -> int:
    """A number of 0 or more, for argparse."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of 0 or more")
    return number
