"""Memory: what was alive on the device over the run, what keeps it, and what JAX's programs need while they run."""

from __future__ import annotations

import textwrap
from bisect import bisect_right

import msgspec
from textual.app import ComposeResult
from textual.containers import Container
from textual.widget import Widget

from xlaprof.analysis.model import JitProgramStat, MemoryReading, MemoryStat, Report
from xlaprof.analysis.views.course import Bar
from xlaprof.text.cells import fit, shorten
from xlaprof.text.quantities import duration, plural, size_text
from xlaprof.text.strings import printable
from xlaprof.tui.snapshot import Snapshot
from xlaprof.tui.widgets import stack
from xlaprof.tui.widgets.looking import Looking, place_text
from xlaprof.tui.widgets.panel import Line, Panel, Region, heading, line, quiet
from xlaprof.tui.widgets.table import Column, SortedTable

_AXIS = 10  # cells of "  1023 MiB" at the right
_NAME = 9  # cells of what a figure is called
_TEXT = 6  # rows above the chart and under it


class JaxProgram(msgspec.Struct, frozen=True):
    """The largest program of a function at a line."""

    function: str
    stat: JitProgramStat


def jax_programs(report: Report) -> tuple[JaxProgram, ...]:
    """Those whose needs are known, the largest first."""
    found = [JaxProgram(function.name, one) for function in report.jax.functions for one in function.programs]
    return tuple(sorted(found, key=lambda one: -one.stat.needs_bytes))


def _columns() -> list[Column[JaxProgram]]:
    return [
        Column("program", 0, lambda one: one.function, lambda one: one.function, keep=8, least=14),
        Column("line", 20, lambda one: place_text(one.stat.place),
               lambda one: (one.stat.place.file, one.stat.place.line), keep=6),
        Column("needs", 9, lambda one: size_text(one.stat.needs_bytes), lambda one: one.stat.needs_bytes, keep=9,
               right=True),
        Column("arguments", 9, lambda one: size_text(one.stat.arguments), lambda one: one.stat.arguments, keep=5,
               right=True),
        Column("results", 9, lambda one: size_text(one.stat.results), lambda one: one.stat.results, keep=4, right=True),
        Column("between", 9, lambda one: size_text(one.stat.temporary), lambda one: one.stat.temporary, keep=7,
               right=True),
        Column("donated", 9, lambda one: size_text(one.stat.donated), lambda one: one.stat.donated, keep=3, right=True),
        Column("devices", 7, lambda one: f"{one.stat.devices:,}", lambda one: one.stat.devices, keep=1, right=True),
        Column("runs", 8, lambda one: f"{one.stat.runs:,}", lambda one: one.stat.runs, keep=2, right=True),
    ]  # fmt: skip


class MemoryPanel(Container, Region):
    """The chart of what was alive; below it, of JAX, the table of programs."""

    TITLE = "Memory"
    HELP = "tensors and programs on the device, read at barriers; of JAX, what its programs need while they run"
    ORDER = 17
    PLACE = "page"
    KEY = "M"

    _report: Report | None = None
    _bars: tuple[Bar, ...] = ()
    _bar: Bar | None = None

    def compose(self) -> ComposeResult:
        yield MemoryChart(id="memory-chart")
        yield SortedTable(_columns(), id="memory-programs", given="needs most")

    def has(self, snapshot: Snapshot) -> bool:
        """Whether the log holds anything on memory."""
        report = snapshot.report
        return report is not None and (report.memory.readings > 0 or bool(jax_programs(report)))

    def show(self, snapshot: Snapshot) -> None:
        """Take the readings of the run."""
        self._report, self._bars = snapshot.report, snapshot.course.bars
        self._fill()

    def follow(self, bar: Bar | None) -> None:
        """Say what was alive at the end of the step."""
        self._bar = bar
        self._fill()

    def _fill(self) -> None:
        report = self._report
        if report is None:
            return
        chart, table, programs = self.query_one(MemoryChart), self.query_one(SortedTable), jax_programs(report)
        chart.take(report.memory, self._bars, self._bar)
        chart.display = report.memory.readings > 0
        table.display = bool(programs)
        table.show([(f"{n}", one) for n, one in enumerate(programs)])
        whole = "of the whole run: " * (self._bar is not None)
        table.border_title = heading(
            "Programs of JAX", f"{whole}bytes of one device while they run, the largest of each line"
        )

    def table(self) -> SortedTable[JaxProgram] | None:
        table = self.query_one(SortedTable)
        return table if table.display else None

    def stops(self) -> list[Widget]:
        return [one for one in (self.query_one(MemoryChart), self.query_one(SortedTable)) if one.display] or [self]

    def on_sorted_table_chosen(self, event: SortedTable.Chosen) -> None:
        event.stop()
        if self.has_class("-shown"):
            self.post_message(Looking(event.row.stat.place))


class Drawn(msgspec.Struct, frozen=True):
    """All that the chart depends on."""

    stat: MemoryStat
    bars: tuple[Bar, ...]  # the steps of the run
    bar: Bar | None
    rows: int

    def when(self, at_s: float) -> str:
        """ "at 9.8 s, after step 12": the last step that had ended by then."""
        number = bisect_right(self.bars, at_s, key=lambda bar: bar.start_s + bar.spans_s) - 1
        return f"at {duration(at_s)}" + (f", after step {self.bars[number].last:,}" if number >= 0 else "")


class MemoryChart(Panel[Drawn]):
    """Bytes alive over the time of the run, with figures, and what retains them."""

    TITLE = "Memory"

    def take(self, stat: MemoryStat, bars: tuple[Bar, ...], bar: Bar | None) -> None:
        """Draw the readings; ``bar``: the step under the cursor."""
        self.draw(Drawn(stat, bars, bar, max(3, self.size.height - _TEXT - len(_retained(stat, self.size.width)))))

    def resized(self) -> None:
        if isinstance(self._data, Drawn):
            self.take(self._data.stat, self._data.bars, self._data.bar)
        super().resized()

    def note(self, data: Drawn) -> str:
        return f"alive on the device, {plural(data.stat.readings, 'reading')} at barriers"

    def lines(self, data: Drawn, width: int) -> list[Line]:
        stat = data.stat
        if stat.last is None or stat.most is None:
            return [quiet("nothing was read so far")]
        shown = [("last", stat.last), ("most", stat.most)]
        if data.bar is not None:
            until = data.bar.start_s + data.bar.spans_s
            before = [one for one in stat.course if one.at_s <= until]
            shown += [("at cursor", before[-1])] if before else []
        out = [_figures(name, one, data.when(one.at_s), width) for name, one in shown]
        out += [line(""), *_chart(data, width)]
        out += _retained(stat, width)
        return out


def _figures(name: str, one: MemoryReading, when: str, width: int) -> Line:
    parts = [f"{size_text(one.bytes):>9}", plural(one.tensors, "tensor"), plural(one.programs, "program"), when]
    shown = shorten("   ".join(parts), max(1, width - _NAME - 1))
    return line((f"{fit(name, _NAME)} ", "$text-muted"), shown)


def _chart(data: Drawn, width: int) -> list[Line]:
    course, cells = data.stat.course, max(1, width - _AXIS)
    begin, end = course[0].at_s, course[-1].at_s
    values: list[float] = []
    at, alive = 0, course[0].bytes
    for column in range(cells):
        until = begin + (end - begin) * (column + 1) / cells
        most = alive
        while at < len(course) and (course[at].at_s <= until or column == cells - 1):
            alive = course[at].bytes
            most = max(most, alive)
            at += 1
        values.append(most)
    top = max(values) or 1
    drawn = stack.rows([stack.column([(value, "$primary")], top, data.rows) for value in values], data.rows)
    rows = []
    for row, cells_of in enumerate(drawn):
        scale = size_text(int(top)) if row == 0 else "0" if row == data.rows - 1 else ""
        rows.append(line(cells_of, (f" {scale}", "$text-muted")))
    first, last = duration(begin), duration(end)
    rows.append(quiet(first + last.rjust(max(len(last) + 1, cells - len(first)))))
    return rows


def _retained(stat: MemoryStat, width: int) -> list[Line]:
    """The lines whose tensors stay, and the container that keeps them."""
    out: list[Line] = []
    if stat.held:
        out += [line(""), line(("Made here, and alive through several readings (of the tensors looked at):", "bold"))]
        for one in stat.held:
            figures = f"  {plural(one.tensors, 'tensor')}, {size_text(one.bytes)}  "
            named = fit(place_text(one.place) or "no line is known", 22)
            rest = max(1, width - len(figures) - 22)
            out.append(line(figures, (named, "$text-warning"), (shorten(one.place.code, rest), "$text-muted")))
    if stat.kept is not None:
        kept = stat.kept
        said = f"The {kept.kind} {kept.path} keeps ever more of them: {plural(kept.length, 'element')} when looked at."
        out += [line((part, "$text-warning")) for part in textwrap.wrap(printable(said), max(8, width))]
        for place in kept.places:
            out.append(line(f"  {place_text(place)}  ", (shorten(place.code, max(1, width - 24)), "$text-muted")))
    return out


PANEL = MemoryPanel
