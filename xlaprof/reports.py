"""A recording, analysed: :func:`report`, for scripts and notebooks, and what the verbs begin with."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from xlaprof.analysis.model import Report
from xlaprof.analysis.run import Run
from xlaprof.collection import no_collection
from xlaprof.columns import LONG
from xlaprof.events import AnyEvent
from xlaprof.log import LogError, Recording
from xlaprof.sources import files
from xlaprof.text.output import progress
from xlaprof.text.quantities import duration, plural
from xlaprof.text.safe import for_terminal
from xlaprof.text.strings import file_line, printable

_LARGE = 50_000_000  # bytes from which on progress is shown
_SHOW_EVERY_S = 0.5
_WIDTH = 100  # columns of the page in a notebook

_T = TypeVar("_T")


class RunReport(Report, frozen=True):
    """What :func:`report` returns: ``findings`` (the one whose fix gives back most first), ``steps``, ``idle``,
    ``compilation``, ``scopes``, ``counters``, ``run``: frozen structs, lengths in seconds.

    ``print(report)`` prints the page of ``xlaprof report``; notebooks show it by themselves.
    """

    def to_json(self) -> dict[str, Any]:
        """The object that ``xlaprof report --json`` prints (docs/report-json.md): dicts, lists, strings, numbers."""
        from xlaprof.pages.json import to_json

        return to_json(self)

    def __repr__(self) -> str:
        steps = [f"{plural(one.count, 'step')} of {duration(one.median_s)} ({one.name})" for one in self.steps]
        parts = [f"{duration(self.run.wall_s)} recorded", *steps, plural(len(self.findings), "finding")]
        found = [
            f"  {number} {one.kind}  {file_line(one.place.file, one.place.line)}  {duration(one.cost_s)}"
            for number, one in enumerate(self.findings, 1)
        ]
        return for_terminal("\n".join(map(printable, [f"Report of {self.run.path}: {', '.join(parts)}", *found])))

    def __str__(self) -> str:
        from rich.console import Console

        from xlaprof.pages.terminal import render

        console = Console(width=_WIDTH, color_system=None, highlight=False, markup=False, emoji=False)
        with console.capture() as page:
            console.print(render(self, _WIDTH))
        return "\n".join(line.rstrip() for line in for_terminal(page.get()).split("\n"))

    def _repr_html_(self) -> str:
        from xlaprof.pages.notebook import notebook

        return notebook(self)


def report(path: str | os.PathLike[str], *, since_step: int | None = None) -> RunReport:
    """The report of the recording at ``path``, as an object::

        report = xlaprof.report("run.log")
        report.findings[0].advice
        assert not [one for one in report.findings if one.kind == "recompile"]

    ``since_step`` leaves out everything before that step, such as warm-up. Raises :class:`LogError` where nothing can
    be read or nothing is left.
    """
    name = os.fsdecode(path)
    run, notes = fold(name, since_step)
    with no_collection():
        made = run.report(name, notes)
    return RunReport(**{field: getattr(made, field) for field in Report.__struct_fields__})


def fold(path: str, since_step: int | None = None) -> tuple[Run, tuple[str, ...]]:
    """The recording at ``path``, analysed, and the notes of its reader.

    ``since_step``: leave out everything before that step. Raises :class:`LogError` where nothing can be read or
    nothing is left.
    """
    reader = files.read(path)
    run = Run(since_step=since_step, long=os.path.getsize(path) > LONG)
    with no_collection():
        for batch in Shown(reader, path).batches():
            run.feed_batch(batch)
    if since_step is not None and run.waiting:
        raise LogError(
            f"{path} has no step {since_step} or later (the last one is {run.step_num}): name an earlier one"
            if run.step_num >= 0
            else f"{path} has no named steps, so --since-step {since_step} leaves nothing: leave the option out"
        )
    return run, reader.notes


class Shown:
    """A recording; of a large one a person at standard error sees how many events were read.

    ``what``: what they are read for, where they are read more than once.
    """

    def __init__(self, recording: Recording, path: str | os.PathLike[str], what: str = "") -> None:
        self._recording = recording
        self._path, self._what = path, f"{what}: " if what else ""

    @property
    def notes(self) -> tuple[str, ...]:
        return self._recording.notes

    def __iter__(self) -> Iterator[AnyEvent]:
        events = iter(self._recording)
        return _counted(events, lambda _: 1, self._what) if takes_long(self._path) else events

    def batches(self) -> Iterator[Sequence[AnyEvent]]:
        batches = self._recording.batches()
        return _counted(batches, len, self._what) if takes_long(self._path) else batches

    def close(self) -> None:
        self._recording.close()


def with_progress(recording: Recording, path: str | os.PathLike[str], what: str = "") -> Iterator[AnyEvent]:
    """The events of a recording that is :class:`Shown`."""
    return iter(Shown(recording, path, what))


def takes_long(path: str | os.PathLike[str]) -> bool:
    """Whether a person at standard error is shown what is being done with the recording at ``path``."""
    return sys.stderr.isatty() and os.path.getsize(path) > _LARGE


def reading(path: str) -> Callable[[str], tuple[Recording, Recording]]:
    """Opens the recording at ``path`` for each reading, which is :class:`Shown`."""

    def read(what: str) -> tuple[Recording, Recording]:
        reader = files.read(path)
        return reader, Shown(reader, path, what)

    return read


def _counted(read: Iterable[_T], events_in: Callable[[_T], int], what: str) -> Iterator[_T]:
    shown, count, due = time.monotonic(), 0, 8192
    for some in read:
        yield some
        count += events_in(some)
        if count >= due:
            due = count + 8192
            if time.monotonic() - shown > _SHOW_EVERY_S:
                shown = time.monotonic()
                progress(f"{what}read {count:,} events")
    progress("")
