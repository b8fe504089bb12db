"""What the UI may ask for besides snapshots: answers that take time, or files. The verb that opens the UI gives them.

All but :attr:`Desk.code`, :attr:`Desk.glimpse` and :attr:`Desk.waits` is called in a thread of its own, since it may
read the whole recording.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from rich.console import RenderableType

from xlaprof.analysis.model import Finding, Place, Report
from xlaprof.analysis.views.course import Bar
from xlaprof.analysis.views.moment import Moment
from xlaprof.analysis.views.painting import Painting, View
from xlaprof.analysis.views.programs import CompiledProgram, Programs
from xlaprof.tui.program import Program
from xlaprof.tui.snapshot import Mark


class CodeLine(msgspec.Struct, frozen=True):
    """A line of the user's source."""

    line: int
    code: str
    marked: bool = False


class Code(msgspec.Struct, frozen=True):
    """The lines around a place, or the whole file; ``path``: where it was found, "" where it was not."""

    lines: tuple[CodeLine, ...] = ()
    remark: str = ""  # why there is no more than the recorded line
    path: str = ""


class ProgramText(msgspec.Struct, frozen=True):
    """A text of a compiled program, and the line of the user's that each of its lines comes from, where it is known."""

    lines: tuple[str, ...]
    places: tuple[Place | None, ...]


class Desk(msgspec.Struct, frozen=True):
    """Each is None where it cannot be had."""

    #: the page of ``xlaprof explain`` on a finding of a report, to be printed so many columns wide
    explain: Callable[[Finding, Report], Callable[[int], RenderableType]] | None = None
    #: the steps in which each finding of a report happened, the first few of each; none of a recording that is too long
    marks: Callable[[Report], tuple[Mark, ...]] | None = None
    #: the number of the last step in the log, while nothing newer is known of it; None: it is not known
    glimpse: Callable[[], int | None] | None = None
    #: whether the log has grown by much, with nothing in it that is to be known at once
    waits: Callable[[], bool] | None = None
    #: a view of the timeline, painted; None: nothing was read yet
    paint: Callable[[View], Painting | None] | None = None
    #: what is known of a step
    moment: Callable[[Bar], Moment | None] | None = None
    #: (place, the program's directory, lines before and after): the code as it is on disk
    code: Callable[[Place, str, int], Code] | None = None
    #: by name what writes the report to a file, which it names
    exports: Mapping[str, Callable[[Report], str]] = {}
    #: the page of ``xlaprof compare`` from the recording at a path to this one, to be printed so many columns wide
    compare: Callable[[str], Callable[[int], RenderableType]] | None = None
    #: the compiled programs whose texts were kept; a :class:`UserError` says why there is none
    programs: Callable[[], Programs] | None = None
    #: (all of them, the program's directory, its log, which one, which form of it, whether to be compared): its text
    text: Callable[[Programs, str, str, CompiledProgram, str, bool], ProgramText] | None = None
    #: have another rank on the screen, by the path of its log
    choose: Callable[[str], None] | None = None
    #: panels that there is nothing for
    without: frozenset[str] = frozenset()
    #: the panel that is shown first; "": the one that had the focus the last time
    first: str = ""
    #: the program beside the screen, which it may end; None: it only looks on
    program: Program | None = None


def unused(path: Path) -> Path:
    """``path``, with a number if it is taken."""
    taken, number = path, 1
    while taken.exists():
        number += 1
        taken = path.with_stem(f"{path.stem}-{number}")
    return taken
