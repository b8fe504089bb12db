"""How verbs open the terminal UI: over a recording that grows, or over one that is complete."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from xlaprof.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType

    from xlaprof.analysis.model import Finding, Place, Report
    from xlaprof.analysis.run import Run
    from xlaprof.events import AnyEvent, Header
    from xlaprof.log import Follower, Recording
    from xlaprof.tui.desk import Code, Desk
    from xlaprof.tui.feed import Feed
    from xlaprof.tui.fleet import FleetFeed
    from xlaprof.tui.program import Program
    from xlaprof.tui.snapshot import Mark

_MARKED = 30_000_000  # bytes: steps of longer recordings are not marked
_MARKS = 12  # findings


class Whole:
    """A complete recording of any kind, in the manner of one that grows."""

    def __init__(self, reader: Recording) -> None:
        self._reader, self._batches = reader, reader.batches()
        self.header: Header | None = None
        self.ended = False

    @property
    def notes(self) -> tuple[str, ...]:
        return self._reader.notes

    def poll(self, limit: int = 8 << 20) -> Sequence[AnyEvent]:
        """The next events: as many as the reader has at once, whatever ``limit`` is."""
        from xlaprof.events import Header

        events = next(filter(None, self._batches), ())
        self.ended = not events
        if self.header is None and events and isinstance(events[0], Header):
            self.header = events[0]
        return events

    def close(self) -> None:
        self._reader.close()


def look(path: str, tail: Follower, program: Program | None = None) -> int:
    """The UI over ``path``, read by ``tail``, until it is closed; the exit code.

    ``program``: the one that writes it, where that is ours to end.
    """
    from xlaprof.tui.feed import CALM_S, REST, SHARE, Feed

    with closing(Feed(path, tail=tail, rest=REST, calm_s=CALM_S, share=SHARE)) as feed:
        feed.open()
        return _show(feed, program)


def look_at_all(folder: str, wait: bool) -> int:
    """The UI over the logs of all ranks in ``folder``, until it is closed; the exit code. ``wait``: for the first."""
    from xlaprof.commands._loading import follow
    from xlaprof.tui.feed import CALM_S, REST, SHARE
    from xlaprof.tui.fleet import FleetFeed

    with closing(FleetFeed(folder, follow, rest=REST, calm_s=CALM_S, share=SHARE)) as feed:
        feed.open(wait)
        return _show(feed)


def _show(feed: Feed | FleetFeed, program: Program | None = None) -> int:
    served = "TEXTUAL_DRIVER" in os.environ  # by textual-serve, to a browser, through pipes
    drawn = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))  # on the last of them
    if not (served or drawn):
        raise UserError(f"the terminal UI needs a terminal to draw in; without one: xlaprof report {feed.path}")

    from xlaprof.collection import keep_memory
    from xlaprof.tui.app import LiveApp
    from xlaprof.tui.terminal import drawn_on

    keep_memory()
    with drawn_on() as terminal:
        app = LiveApp(feed.advance, desk=desk(feed, program), is_gone=terminal.is_gone)
        app.run()
    return app.return_code or 0


def desk(feed: Feed | FleetFeed, program: Program | None = None) -> Desk:
    """What the UI over ``feed`` may ask for."""
    from xlaprof.commands._texts import programs, text_for_screen
    from xlaprof.tui.desk import Desk
    from xlaprof.tui.fleet import FleetFeed

    several = isinstance(feed, FleetFeed)
    absent = {"ranks": not several, "output": program is None}
    return Desk(
        explain=partial(_explain, feed),
        marks=partial(_marks, feed),
        glimpse=feed.glimpse,
        waits=None if isinstance(feed, FleetFeed) else feed.waits,
        paint=feed.paint,
        moment=feed.moment,
        code=_code,
        compare=partial(_compare, feed),
        programs=lambda: programs(feed.path),
        text=text_for_screen,
        exports={"HTML": _write_html, "JSON": _write_json},
        choose=feed.choose if isinstance(feed, FleetFeed) else None,
        without=frozenset(name for name, missing in absent.items() if missing),
        first="ranks" if several else "",
        program=program,
    )


def _explain(feed: Feed | FleetFeed, finding: Finding, report: Report) -> Callable[[int], RenderableType]:
    """The page of ``xlaprof explain``, to be printed so many columns wide."""
    from xlaprof.analysis.occurrences import Occurrences, occurrences
    from xlaprof.pages.explain import render
    from xlaprof.pages.source import source
    from xlaprof.sources import files

    happened, cwd = Occurrences(0, (), (), 0.0), ""
    held = feed.finding(finding.id)
    if held is not None:
        counted, report, run = held
        cwd = run.header.cwd if run.header is not None else ""
        with closing(files.read(feed.path)) as reader:
            happened = occurrences(reader.batches(), run, counted)
    sources = source(finding.place, cwd), tuple(source(place, cwd, 1) for place in finding.also)
    return lambda width: render(finding, report, happened, sources, width)


def _compare(feed: Feed | FleetFeed, path: str) -> Callable[[int], RenderableType]:
    """The page of ``xlaprof compare``, from the recording at ``path`` to this one as far as it goes."""
    from xlaprof.analysis.gates.compare import compare, obstacles
    from xlaprof.pages.compare import render

    (before, one), (after, two) = _whole(os.path.expanduser(path)), _whole(feed.path)
    return partial(render, compare(before, after, (one, two), despite=obstacles(one, two)))


def _whole(path: str) -> tuple[Run, Report]:
    """A recording read anew, without a line of progress, which would be drawn over the screen."""
    from xlaprof.analysis.run import Run
    from xlaprof.collection import no_collection
    from xlaprof.sources import files

    with closing(files.read(path)) as reader, no_collection():
        run = Run(long=os.path.getsize(path) > _MARKED)
        for batch in reader.batches():
            run.feed_batch(batch)
        return run, run.report(path, reader.notes)


def _marks(feed: Feed | FleetFeed, report: Report) -> tuple[Mark, ...]:
    """The steps of the first moments of each of the first findings."""
    from xlaprof.analysis.occurrences import occurrences
    from xlaprof.sources import files
    from xlaprof.tui.snapshot import Mark

    if os.path.getsize(feed.path) > _MARKED:
        return ()
    with closing(files.read(feed.path)) as reader:
        batches = list(reader.batches())
    found: dict[tuple[int, str], Mark] = {}
    for one in report.findings[:_MARKS]:
        held = feed.finding(one.id)
        if held is None:
            continue
        counted, _, run = held
        for moment in occurrences(batches, run, counted).first:
            if moment.step is not None:
                found[moment.step, one.id] = Mark(moment.step, one.id, one.severity)
    return tuple(found.values())


def _code(place: Place, cwd: str, around: int) -> Code:
    from xlaprof.pages.source import source
    from xlaprof.tui.desk import Code, CodeLine

    found = source(place, cwd, around)
    lines = tuple(CodeLine(one.line, one.code, one.marked) for one in found.lines)
    there = (os.path.join(cwd, place.file), place.file) if found.state in ("recorded", "changed") else ()
    return Code(lines, found.remark, next((os.path.abspath(path) for path in there if os.path.exists(path)), ""))


def _write_html(report: Report) -> str:
    from xlaprof.pages.html.write import write
    from xlaprof.sources import files
    from xlaprof.tui.desk import unused

    def read(what: str) -> tuple[Recording, Recording]:
        reader = files.read(report.run.path)
        return reader, reader  # without a line of progress, which would be drawn over the screen

    path = str(unused(Path(report.run.path).with_suffix(".html")))
    write(report.run.path, path, read)
    return path


def _write_json(report: Report) -> str:
    from xlaprof.pages.json import text, to_json
    from xlaprof.tui.desk import unused

    path = unused(Path(report.run.path).with_suffix(".report.json"))
    path.write_text(text(to_json(report)), "utf-8")
    return str(path)
