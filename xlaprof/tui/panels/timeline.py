"""Timeline: what each thread of the host and the device did, transfers, and idle time in the colour of its blame."""

from __future__ import annotations

import asyncio
import textwrap
from itertools import groupby
from typing import ClassVar

import msgspec
from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.message import Message
from textual.widget import Widget

from xlaprof.analysis.views.course import Bar
from xlaprof.analysis.views.painting import EIGHTHS, Account, Painting, View
from xlaprof.text.cells import COLUMNS, fit, shorten
from xlaprof.text.quantities import duration, percent
from xlaprof.text.strings import path_line, printable
from xlaprof.tui.snapshot import Snapshot
from xlaprof.tui.widgets.bars import bar_rows
from xlaprof.tui.widgets.colours import colour
from xlaprof.tui.widgets.looking import Looking
from xlaprof.tui.widgets.panel import Line, Panel, Region, line, quiet

_TITLE = 24  # cells of a row's name
_DEVICE = ("#7cb871", "#3d7d35")
_STEPS = ("#5aa9e6", "#1f6fb2")
_AROUND = 0.5  # of a step's length is shown before and after it
_NAMED = 10  # rows of blame


class TimelinePanel(Container, Region):
    """The rows above, what is known of the selected stretch below."""

    TITLE = "Timeline"
    HELP = "a row for each thread, device, transfers and idle time, which has the colour of what is to blame"
    ORDER = 11
    PLACE = "page"

    _seen = (-1, -1.0)

    def compose(self) -> ComposeResult:
        yield LanesPanel(id="lanes")
        yield AccountPanel(id="lane-detail")

    def show(self, snapshot: Snapshot) -> None:
        """Draw what has come, if it is on the screen."""
        report = snapshot.report
        if report is None or not self.has_class("-shown"):
            return
        now = report.run.events, report.run.wall_s
        if now != self._seen:
            self._seen = now
            self.paint()

    def follow(self, bar: Bar | None) -> None:
        """Show the step under the cursor, and a little around it."""
        self.query_one(LanesPanel).see(bar)

    def stops(self) -> list[Widget]:
        return [self.query_one(LanesPanel), self.query_one(AccountPanel)]

    def on_lanes_panel_moved(self, event: LanesPanel.Moved) -> None:
        event.stop()
        self.paint()

    @work(exclusive=True)
    async def paint(self) -> None:
        """Have the rows painted in a thread: there may be hundreds of thousands of stretches."""
        lanes = self.query_one(LanesPanel)
        paint = getattr(getattr(self.app, "desk", None), "paint", None)
        width = lanes.scrollable_content_region.width - _TITLE - 1
        if paint is None or width < 1:
            return
        painting = await asyncio.to_thread(paint, msgspec.structs.replace(lanes.view, width=width))
        if painting is not None:
            lanes.painted(painting)
            self.query_one(AccountPanel).draw(painting.told)
            if painting.told is not None and painting.told.place.line:
                self.post_message(Looking(painting.told.place))


class Shown(msgspec.Struct, frozen=True):
    """A painting, and the colours it is drawn in."""

    painting: Painting
    dark: bool


class LanesPanel(Panel[Shown]):
    """The rows with a cursor."""

    TITLE = "Timeline"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(0, -1)", "Left", show=False),
        Binding("right", "move(0, 1)", "Right", show=False),
        Binding("up", "move(-1, 0)", "Up", show=False),
        Binding("down", "move(1, 0)", "Down", show=False),
        Binding("shift+left,ctrl+left", "pan(-1)", "Pan left", show=False),
        Binding("shift+right,ctrl+right", "pan(1)", "Pan right", show=False),
        Binding("plus,equals_sign", "zoom(-1)", "Zoom in", key_display="+"),
        Binding("minus", "zoom(1)", "Zoom out", key_display="-"),
        Binding("f", "follow", "Whole run"),
    ]

    class Moved(Message):
        """Another part is to be painted."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.view = View(0)
        self._painting = Painting()

    def painted(self, painting: Painting) -> None:
        """Show ``painting``."""
        self._painting = painting
        self.draw(Shown(painting, self.app.current_theme.dark))

    def see(self, bar: Bar | None) -> None:
        """Show one step, or the whole run."""
        if bar is None:
            self.view = View(0)
        else:
            around = _AROUND * bar.mean_s
            start = max(0.0, bar.start_s - around)
            self.view = View(0, start, bar.start_s + bar.total_s + around, self.view.row, -1)
        self.post_message(self.Moved())

    def action_move(self, rows: int, cells: int) -> None:
        """Move the cursor; at an edge, the view."""
        seen = self._painting
        if not seen.lanes:
            return
        view = self.view
        row = max(0, min(len(seen.lanes) - 1, view.row + rows))
        cell = (seen.view.width // 2 if view.cell < 0 else view.cell) + cells
        if not 0 <= cell < seen.view.width:
            self.view = msgspec.structs.replace(view, row=row, cell=max(0, min(seen.view.width - 1, cell)))
            self.action_pan(cells)
            return
        self.view = msgspec.structs.replace(view, row=row, cell=cell)
        self.post_message(self.Moved())

    def action_pan(self, by: int) -> None:
        """Go on by half of what is seen."""
        seen = self._painting.view
        length = seen.end_s - seen.start_s
        start = max(0.0, min(self._painting.whole_s - length, seen.start_s + by * length / 2))
        self.view = msgspec.structs.replace(self.view, start_s=start, end_s=start + length)
        self.post_message(self.Moved())

    def action_zoom(self, by: int) -> None:
        """See half or twice as much, around the cursor."""
        seen, cell = self._painting.view, self.view.cell
        if not seen.width:
            return
        length = seen.end_s - seen.start_s
        at = seen.start_s + length * ((cell if cell >= 0 else seen.width / 2) + 0.5) / seen.width
        longer = length * 2.0**by
        if longer >= self._painting.whole_s:
            self.view = View(0, row=self.view.row)
        else:
            start = max(0.0, at - (at - seen.start_s) / length * longer)
            self.view = msgspec.structs.replace(self.view, start_s=start, end_s=start + longer)
        self.post_message(self.Moved())

    def action_follow(self) -> None:
        """See the whole run, also what is still to come."""
        self.view = View(0, row=self.view.row)
        self.post_message(self.Moved())

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        if at is None:
            return
        row, cell = at.y + int(self.scroll_offset.y) - 1, at.x - _TITLE
        if 0 <= row < len(self._painting.lanes) and 0 <= cell < self._painting.view.width:
            self.view = msgspec.structs.replace(self.view, row=row, cell=cell)
            self.post_message(self.Moved())

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        if event.ctrl:
            self.action_zoom(-1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        if event.ctrl:
            self.action_zoom(1)

    def resized(self) -> None:
        super().resized()
        self.post_message(self.Moved())

    def note(self, data: Shown) -> str:
        seen = data.painting
        length = seen.view.end_s - seen.view.start_s
        if not seen.lanes or not seen.view.width:
            return ""
        share = f", {percent(length / seen.whole_s)} of the run" if length < seen.whole_s else ""
        return f"{duration(length)}{share}; a cell is {duration(length / seen.view.width)}"

    def lines(self, data: Shown, width: int) -> list[Line]:
        seen = data.painting
        if not seen.lanes:
            return [quiet("nothing that takes time has been recorded yet")]
        out = [self._axis(seen)]
        for number, lane in enumerate(seen.lanes):
            here = number == seen.view.row
            cells = [
                (COLUMNS[min(8, 8 * filled // EIGHTHS)], _shade(part, data.dark), here and n == seen.view.cell)
                for n, (part, filled) in enumerate(lane.cells)
            ]
            drawn: list[str | tuple[str, str]] = []
            for (shade, cursor), group in groupby(cells, key=lambda one: (one[1], one[2])):
                text = "".join(char for char, _, _ in group)
                style = f"{shade} {'reverse' if cursor else ''}".strip()
                drawn.append((text, style) if style else text)
            out.append(line((fit(lane.title, _TITLE), "bold" if here else "$text-muted"), *drawn))
        return out

    @staticmethod
    def _axis(seen: Painting) -> Line:
        """Moments since the begin of the run, every 16 cells or so."""
        view = seen.view
        text = ""
        for at in range(0, view.width, 16):
            moment = view.start_s + (view.end_s - view.start_s) * at / view.width
            text += fit(f"│{moment:.3f} s" if moment < 1000 else f"│{duration(moment)}", 16)
        return line(" " * _TITLE, (text[: view.width], "$text-muted"))


def _shade(part: str, dark: bool) -> str:
    if not part:
        return ""
    return {"device": _DEVICE, "step": _STEPS}.get(part, (colour(part, True), colour(part, False)))[not dark]


class AccountPanel(Panel[Account | None]):
    """What is known of a stretch, its line, and of idle time what is to blame."""

    TITLE = "Selected"

    def lines(self, data: Account | None, width: int) -> list[Line]:
        if data is None:
            return [quiet("arrows move the cursor over the rows; nothing is under it")]
        wide = max(8, width)
        out = [line((part, "bold")) for part in textwrap.wrap(printable(data.text), wide)]
        many = f", the longest of {data.count:,} in this cell" if data.count > 1 else ""
        out.append(quiet(shorten(f"{duration(data.dur_s)} from {data.start_s:.6f} s on{many}", width)))
        if data.place.line:
            where = path_line(data.place.file, data.place.line)
            out.append(line((shorten(where, width, keep_end=True), "$text-muted")))
            out.append(line("  ", shorten(data.place.code, width - 2)))
        if data.blame:
            dark = self.app.current_theme.dark if self.is_attached else True
            out.append(line(""))
            rows = [(name, seconds, colour(name, dark)) for name, seconds in data.blame[:_NAMED]]
            out += bar_rows(rows, data.dur_s or 1.0, width)
        return out


PANEL = TimelinePanel
