"""Source: the lines of the program that cost something, and the code around the selected one with its costs."""

from __future__ import annotations

import asyncio

import msgspec
from textual import work
from textual.app import ComposeResult
from textual.containers import Container
from textual.highlight import highlight
from textual.widget import Widget

from xlaprof.analysis.model import Place
from xlaprof.analysis.views.details import LineCost
from xlaprof.analysis.views.moment import Moment
from xlaprof.text.cells import bar, fit, shorten
from xlaprof.text.quantities import duration
from xlaprof.text.strings import file_line, printable
from xlaprof.tui.desk import Code
from xlaprof.tui.snapshot import Snapshot
from xlaprof.tui.widgets.looking import Looking, place_text
from xlaprof.tui.widgets.panel import Line, Panel, Region, heading, line, quiet
from xlaprof.tui.widgets.table import Column, SortedTable

_AROUND = 400  # lines before and after the selected one
_BAR = 6  # cells


def _columns() -> list[Column[LineCost]]:
    return [
        Column("line", 20, lambda one: place_text(one.place), lambda one: (one.place.file, one.place.line), keep=9),
        Column("seconds", 9, lambda one: duration(one.seconds), lambda one: one.seconds, keep=8, right=True),
        Column("what", 0, lambda one: "; ".join(text for _, _, text in one.items), lambda one: one.items[0][2],
               keep=7, least=16),
    ]  # fmt: skip


class Gutter(msgspec.Struct, frozen=True):
    """A file's lines, and what they cost by number."""

    code: Code
    place: Place
    costs: tuple[tuple[int, float, str], ...] = ()  # line, seconds, part


class SourcePanel(Container, Region):
    """The table of costly lines; beside it, or below, their code."""

    TITLE = "Source"
    HELP = "lines that cost something; the next one down is the next costly line"
    ORDER = 14
    PLACE = "page"

    _whole: tuple[LineCost, ...] = ()  # of the run
    _lines: tuple[LineCost, ...] = ()  # as they are shown
    _moment: Moment | None = None
    _cwd = ""

    def compose(self) -> ComposeResult:
        yield SortedTable(_columns(), id="source-table", given="cost")
        yield CodePanel(id="source-code")

    def show(self, snapshot: Snapshot) -> None:
        """Take the costs of the run by line."""
        self._whole, self._cwd = snapshot.details.lines, snapshot.cwd
        self._fill()

    def explain(self, moment: Moment | None) -> None:
        """Show what the lines cost in the step."""
        self._moment = moment
        self._fill()
        row = self.query_one(SortedTable).row
        if row is not None and self.has_class("-shown"):
            self.read(row.place)

    def _fill(self) -> None:
        at = self._moment
        self._lines = at.lines if at is not None else self._whole
        table = self.query_one(SortedTable)
        table.show([(f"{one.place.file}:{one.place.line}", one) for one in self._lines])
        if at is not None:
            note = f"at {at.bar.title}: the host's time" if self._lines else f"none is known at {at.bar.title}"
        else:
            note = (
                "summed over all that is counted there; parts may overlap" if self._lines else "no line has a cost yet"
            )
        table.border_title = heading("Lines", note)

    def table(self) -> SortedTable[LineCost]:
        return self.query_one(SortedTable)

    def stops(self) -> list[Widget]:
        return [self.query_one(SortedTable), self.query_one(CodePanel)]

    def on_sorted_table_chosen(self, event: SortedTable.Chosen) -> None:
        event.stop()
        self.post_message(Looking(event.row.place))
        self.read(event.row.place)

    @work(exclusive=True)
    async def read(self, place: Place) -> None:
        """Read the file in a thread: it may be on a slow disk."""
        desk = getattr(self.app, "desk", None)
        if desk is None or desk.code is None:
            return
        code = await asyncio.to_thread(desk.code, place, self._cwd, _AROUND)
        costs = tuple(
            (one.place.line, one.seconds, one.items[0][0]) for one in self._lines if one.place.file == place.file
        )
        panel = self.query_one(CodePanel)
        panel.draw(Gutter(code, place, costs))
        first = code.lines[0].line if code.lines else place.line
        panel.call_after_refresh(panel.scroll_to, y=max(0, place.line - first - panel.size.height // 3), animate=False)


class CodePanel(Panel[Gutter]):
    """A file with a gutter: seconds and part of each line."""

    TITLE = "Code"

    def title(self, data: Gutter) -> str:
        return file_line(data.place.file, data.place.line)

    def lines(self, data: Gutter, width: int) -> list[Line]:
        costs = {number: (seconds, part) for number, seconds, part in data.costs}
        most = max((seconds for seconds, _ in costs.values()), default=0.0) or 1.0
        digits = len(str(max((one.line for one in data.code.lines), default=0)))
        out = [quiet(shorten(data.code.remark, width))] if data.code.remark else []
        for one in data.code.lines:
            seconds, part = costs.get(one.line, (0.0, ""))
            drawn = fit(bar(seconds / most, _BAR), _BAR) if seconds else " " * _BAR
            named = f"{fit(duration(seconds) if seconds else '', 8, right=True)} {fit(part, 13)}" if width >= 70 else ""
            code = printable(one.code.expandtabs(4))
            shown = highlight(shorten(code, max(8, width - _BAR - len(named) - digits - 5)), language="python")
            number = (f" {one.line:>{digits}} ", "bold $text-warning" if one.marked else "$text-muted")
            out.append(line((drawn, "$warning"), (named, "$text-muted"), number, "> " if one.marked else "  ", shown))
        return out or [quiet("no code is known")]


PANEL = SourcePanel
