"""Step time over the whole run: each column a step, stacked by what took it; a cursor that the other panels follow."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

import msgspec
from textual import events, work
from textual.binding import Binding, BindingType
from textual.message import Message

from xlaprof.analysis.model import Report, StepStats
from xlaprof.analysis.views.course import Bar, Course
from xlaprof.errors import UserError
from xlaprof.text.cells import ceiling, fit
from xlaprof.text.parts import PARTS
from xlaprof.text.quantities import duration, plural
from xlaprof.tui.marking import Marking
from xlaprof.tui.snapshot import Mark, Snapshot
from xlaprof.tui.widgets import stack
from xlaprof.tui.widgets.colours import colour
from xlaprof.tui.widgets.panel import Line, Panel, line, quiet

_FIGURES = 18  # cells of the column "median   12.3 ms"
_AXIS = 11  # cells of "▲ 10.6 s" at the right
_RARE = 10  # a finding is marked by itself if it happens in at most one of so many steps
_WIDEST = 6  # cells of a step's column
_MARKS = {"high": "$text-error", "medium": "$text-warning", "low": "$text-muted"}


class Drawn(msgspec.Struct, frozen=True):
    """All that the chart depends on."""

    stat: StepStats
    course: Course
    marks: tuple[Mark, ...]
    zoom: int  # 0: the whole run; each more shows half as much
    end: int  # the last bar that is shown; -1: the newest
    cursor: int  # the bar under the cursor; -1: none
    height: int
    dark: bool


class Seen(msgspec.Struct, frozen=True):
    """The columns on the screen: bars from ``first`` on, ``each`` to a column."""

    first: int
    each: int
    count: int  # columns
    width: int  # cells of all columns

    def begin(self, column: int) -> int:
        """The first cell of a column: some are a cell wider than others, so that all have the whole width."""
        return column * self.width // self.count

    def cells(self, column: int) -> int:
        return self.begin(column + 1) - self.begin(column)


def seen(bars: int, width: int, zoom: int, end: int) -> Seen:
    """Which bars are shown, in how many columns, in ``width`` cells."""
    shown = max(1, min(bars, max(8, bars >> zoom)))
    each = max(1, -(-shown // max(1, width)))
    count = max(1, -(-shown // each))
    last = bars if end < 0 else min(bars, max(end + 1, count * each))
    return Seen(max(0, last - count * each), each, count, min(width, count * _WIDEST))


class StepsPanel(Panel[Drawn | None]):
    TITLE = "Step time"
    HELP = "a column is a step, or some on average; ▲ marks those off the scale, ◆ findings"
    ORDER = 0
    PLACE = "top"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1)", "Step back", show=False),
        Binding("right", "move(1)", "Step on", show=False),
        Binding("shift+left,ctrl+left", "move(-10)", "10 back", show=False),
        Binding("shift+right,ctrl+right", "move(10)", "10 on", show=False),
        Binding("home", "move(-1000000000)", "First step", show=False),
        Binding("end", "move(1000000000)", "Last step", show=False),
        Binding("plus,equals_sign", "zoom(1)", "Zoom in", key_display="+"),
        Binding("minus", "zoom(-1)", "Zoom out", key_display="-"),
        Binding("f", "follow", "Follow"),
    ]

    class Chosen(Message):
        """The cursor is on a bar; None: on none, what is shown is the whole run."""

        def __init__(self, bar: Bar | None) -> None:
            super().__init__()
            self.bar = bar

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._course = Course()
        self._marks: tuple[Mark, ...] = ()
        self.zoom, self.end, self.cursor = 0, -1, -1
        self._looked_at = ""  # id of a finding
        self._marking = Marking()
        #: the chart as it was drawn last, and of what
        self._stacked: tuple[tuple[Course, Seen, int, bool], list[list[stack.Cell]]] | None = None

    def show(self, snapshot: Snapshot) -> None:
        """Take the steps of the run."""
        if snapshot.report is None:
            return
        self._report, self._course = snapshot.report, snapshot.course
        if self.cursor >= len(self._course.bars):  # another run
            self.cursor, self.end = -1, -1
        self._update()

    def mark(self, marks: tuple[Mark, ...]) -> None:
        """Mark the steps in which findings happened."""
        self._marks = marks
        self._update()

    def look_for_marks(self, snapshot: Snapshot, marks: Callable[[Report], tuple[Mark, ...]] | None) -> None:
        """Have the steps looked up in which findings happened, when there are more of them than at the last time."""
        report, following = snapshot.report, snapshot.link != "catching up"
        if report is not None and marks is not None and following and self._marking.is_due(report):
            self._marking.begin(report)
            self._look_up(marks, report)

    @work(exclusive=True)
    async def _look_up(self, marks: Callable[[Report], tuple[Mark, ...]], report: Report) -> None:
        with contextlib.suppress(UserError, OSError):  # the log may be gone by now; the state line says so
            self.mark(await asyncio.to_thread(marks, report))
        self._marking.end()

    def look(self, id: str) -> None:
        """Mark all steps of this finding too, however many they are."""
        if id != self._looked_at:
            self._looked_at = id
            self._update()

    def _shown_marks(self) -> tuple[Mark, ...]:
        """Those of the selected finding, and of those that happen now and then."""
        times = Counter(mark.id for mark in self._marks)
        steps = sum(bar.count for bar in self._course.bars)
        return tuple(mark for mark in self._marks if mark.id == self._looked_at or _RARE * times[mark.id] <= steps)

    def _update(self) -> None:
        report = self._report
        if report is None or not report.steps:
            self.draw(None)
            return
        height = max(3, self.size.height - 1 - self._has_scale(self.size.height))
        dark = self.app.current_theme.dark
        self.draw(
            Drawn(report.steps[0], self._course, self._shown_marks(), self.zoom, self.end, self.cursor, height, dark)
        )

    @staticmethod
    def _has_scale(rows: int) -> bool:
        return rows >= 6

    def resized(self) -> None:
        self._update()
        super().resized()

    def goto(self, step: int) -> bool:
        """Put the cursor on the bar of a step; False if there is none."""
        found = next((n for n, bar in enumerate(self._course.bars) if bar.first <= step <= bar.last), -1)
        if found >= 0:
            self._put(found)
        return found >= 0

    def action_move(self, by: int) -> None:
        """Move the cursor."""
        last = len(self._course.bars) - 1
        if last >= 0:
            self._put(max(0, min(last, (last if self.cursor < 0 else self.cursor + by))))

    def action_zoom(self, by: int) -> None:
        """Show half or twice as much, around the cursor."""
        self.zoom = max(0, min(self.zoom + by, max(0, (len(self._course.bars) // 8).bit_length() - 1)))
        self._put(self.cursor)

    def action_follow(self) -> None:
        """The whole run and its newest steps, without a cursor."""
        self.zoom, self.end, self.cursor = 0, -1, -1
        self._update()
        self.post_message(self.Chosen(None))

    def _put(self, at: int) -> None:
        self.cursor = at
        bars = len(self._course.bars)
        shown = seen(bars, self._chart_width(), self.zoom, self.end)
        past = shown.first + shown.count * shown.each
        if at >= 0 and not shown.first <= at < past:
            self.end = min(bars - 1, at + shown.count * shown.each // 2)
        self._update()
        if at >= 0:
            self.post_message(self.Chosen(self._course.bars[at]))

    def on_click(self, event: events.Click) -> None:
        shown = seen(len(self._course.bars), self._chart_width(), self.zoom, self.end)
        at = event.get_content_offset(self)
        if at is None:
            return
        column = next((n for n in range(shown.count) if shown.begin(n) <= at.x - _FIGURES < shown.begin(n + 1)), -1)
        bar = shown.first + column * shown.each
        if column >= 0 and bar < len(self._course.bars):
            self._put(bar)

    def _chart_width(self, width: int = 0) -> int:
        return max(1, (width or self.scrollable_content_region.width) - _FIGURES - _AXIS)

    def note(self, data: Drawn | None) -> str:
        if data is None:
            return ""
        stat = data.stat
        count = (
            f"{stat.count:,} between barriers"
            if stat.inferred
            else plural(stat.count, " ".join(dict.fromkeys((stat.name, "step"))))
        )
        if 0 <= data.cursor < len(data.course.bars):
            bar = data.course.bars[data.cursor]
            why = ", ".join(f"{name} {duration(seconds)}" for name, seconds in bar.named()[:3])
            return f"{count}   at {bar.title}: {duration(bar.mean_s)}: {why}"
        return count

    def lines(self, data: Drawn | None, width: int) -> list[Line]:
        if data is None:
            return [quiet("no step has ended yet"), line(""), line("")]
        stat, bars = data.stat, data.course.bars
        figures = [("median", stat.median_s), ("p95", stat.p95_s), ("first", stat.first_s)]
        figures += [("max", stat.max_s), ("min", stat.min_s)]
        if width < 40 or not bars:
            return [line((fit(name, 7), "$text-muted"), fit(duration(s), 9, right=True)) for name, s in figures[:3]]
        shown = seen(len(bars), self._chart_width(width), data.zoom, data.end)
        groups = [bars[at : at + shown.each] for at in range(shown.first, len(bars), shown.each)][: shown.count]
        shown = Seen(shown.first, shown.each, len(groups), shown.width)
        means = [sum(bar.total_s for bar in group) / sum(bar.count for bar in group) for group in groups]
        top, longest = ceiling(means), max(bar.most_s for group in groups for bar in group)
        columns, lit = self._columns(data, groups, shown, top), []
        for number in range(len(groups)):
            here = shown.first + number * shown.each
            lit += [here <= data.cursor < here + shown.each] * shown.cells(number)
        chart = stack.rows(columns, data.height, lit, "$foreground 25%")
        scale = [(duration(top), "$text-muted"), (f"▲ {duration(longest)}" * (longest > top), "$text-warning")]
        out = []
        for row, drawn in enumerate(chart):
            name, seconds = figures[row] if row < len(figures) else ("", 0.0)
            figure = fit(duration(seconds), 9, right=True) if name else " " * 9
            note = ("0", "$text-muted") if row == data.height - 1 else scale[row] if row < 2 else ("", "")
            out.append(line((fit(name, 7), "$text-muted"), figure, "  ", drawn, " ", note))
        if self._has_scale(data.height + 2):
            out.append(self._scale(data, groups, shown))
        return out

    def _columns(self, data: Drawn, groups: list[tuple[Bar, ...]], shown: Seen, top: float) -> list[list[stack.Cell]]:
        """The cells of the chart: a cursor that moves in it leaves them as they are."""
        seen_now = data.course, shown, data.height, data.dark
        if self._stacked is None or self._stacked[0] != seen_now:
            columns: list[list[stack.Cell]] = []
            for number, group in enumerate(groups):
                columns += [stack.column(_parts(group, top, data.dark), top, data.height)] * shown.cells(number)
            self._stacked = seen_now, columns
        return self._stacked[1]

    @staticmethod
    def _scale(data: Drawn, groups: list[tuple[Bar, ...]], shown: Seen) -> Line:
        """The line under the chart: findings where they happened, and numbers of steps."""
        width = shown.width
        first, last = f"{groups[0][0].first:,}", f"{groups[-1][-1].last:,}"
        cells: list[tuple[str, str]] = [(" ", "")] * width
        for n, char in enumerate(first[:width]):
            cells[n] = char, "$text-muted"
        for n, char in enumerate(reversed(last)):
            if width - 1 - n > len(first):
                cells[width - 1 - n] = char, "$text-muted"
        if 0 <= data.cursor < len(data.course.bars):
            place = shown.begin((data.cursor - shown.first) // shown.each)
            if 0 <= place < width:
                cells[place] = "▲", "bold $text-primary"
        for mark in data.marks:
            at = next((n for n, group in enumerate(groups) if group[0].first <= mark.step <= group[-1].last), -1)
            if at >= 0:
                cells[shown.begin(at)] = "◆", _MARKS.get(mark.severity, "")
        return line(" " * _FIGURES, *cells)


def _parts(group: tuple[Bar, ...], top: float, dark: bool) -> list[tuple[float, str]]:
    """The parts of a step on average, each with its colour, from the bottom; in proportion where they pass ``top``."""
    count = sum(bar.count for bar in group)
    summed = [sum(seconds) / count for seconds in zip(*(bar.parts for bar in group), strict=True)]
    share = min(1.0, top / sum(summed)) if sum(summed) > 0 else 1.0
    named = zip(PARTS, summed, strict=True)
    return [(seconds * share, colour(name, dark)) for (name, _), seconds in named if seconds > 0]


PANEL = StepsPanel
