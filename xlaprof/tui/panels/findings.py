"""Findings: the ranked table, and the details of the selected one."""

from __future__ import annotations

import textwrap
from collections import Counter

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.highlight import highlight
from textual.timer import Timer
from textual.widget import Widget

from xlaprof.analysis.model import CONFIDENCES, SEVERITIES, Finding
from xlaprof.analysis.outcome import without_findings
from xlaprof.analysis.places import called
from xlaprof.analysis.views.moment import Moment
from xlaprof.text.cells import fit, shorten
from xlaprof.text.quantities import duration, plural
from xlaprof.text.strings import printable
from xlaprof.tui.snapshot import Snapshot, stopped
from xlaprof.tui.widgets.looking import Explain, Looking, place_text
from xlaprof.tui.widgets.panel import Line, Panel, Region, heading, line, quiet
from xlaprof.tui.widgets.table import Column, SortedTable

COLOURS = {"high": "text-error", "medium": "text-warning", "low": "text-muted"}
FLASH_S = 1.5  # a new finding is lit for so long


def label(kind: str) -> str:
    """A kind of finding in words: "missing barrier"."""
    return kind.replace("_", " ")


def keys(findings: tuple[Finding, ...]) -> list[str]:
    """A key for each finding: its id, and a number, since the same code on two lines has one id."""
    seen: Counter[str] = Counter()
    out = []
    for finding in findings:
        out.append(f"{finding.id}-{seen[finding.id]}")
        seen[finding.id] += 1
    return out


class FindingRow(msgspec.Struct, frozen=True):
    """A finding in the table; ``last``: the step at which it was last seen to happen, -1 where that is not known."""

    rank: int  # in the report's order
    finding: Finding
    last: int


def _columns() -> list[Column[FindingRow]]:
    severity = {name: rank for rank, name in enumerate(reversed(SEVERITIES))}
    confidence = {name: rank for rank, name in enumerate(reversed(CONFIDENCES))}
    return [
        Column(" ", 1, lambda row: ("●", COLOURS.get(row.finding.severity, "")),
               lambda row: severity.get(row.finding.severity, -1), keep=99),
        Column("kind", 15, lambda row: label(row.finding.kind), lambda row: row.finding.kind, keep=9),
        Column("line", 18, lambda row: place_text(row.finding.place, 18),
               lambda row: (row.finding.place.file, row.finding.place.line), keep=8),
        Column("code", 0, lambda row: (row.finding.place.code or row.finding.operation, "text-muted"),
               lambda row: row.finding.place.code, keep=4, least=12),
        Column("count", 7, lambda row: f"{row.finding.count:,}", lambda row: row.finding.count, keep=5, right=True),
        Column("cost", 8, lambda row: duration(row.finding.cost_s), lambda row: row.finding.cost_s, keep=6, right=True),
        Column("gain", 8, lambda row: duration(row.finding.gain_s) if row.finding.gain_s > 0 else "-",
               lambda row: row.finding.gain_s, keep=7, right=True),
        Column("sure", 7, lambda row: (row.finding.confidence, "text-warning" * (row.finding.confidence != "high")),
               lambda row: confidence.get(row.finding.confidence, -1), keep=3),
        Column("last", 7, lambda row: f"{row.last:,}" if row.last >= 0 else "",
               lambda row: row.last, keep=2, right=True),
        Column("id", 12, lambda row: (row.finding.id, "text-muted"), lambda row: row.finding.id, keep=1),
    ]  # fmt: skip


class FindingsTable(SortedTable[FindingRow]):
    """Rows that can be explained."""

    BINDINGS = [Binding("enter", "select_cursor", "Explain", key_display="enter")]  # noqa: RUF012  # Textual types it as a list


class Nothing(msgspec.Struct, frozen=True):
    """There is no finding, ``said`` in words; ``good``: and none will come. ``costly``: what took long all the same."""

    said: str
    good: bool = False
    costly: tuple[str, ...] = ()


class FindingDetail(Panel[Finding | Nothing]):
    """Cause, advice, cost and evidence of one finding, under its line of code."""

    def lines(self, data: Finding | Nothing, width: int) -> list[Line]:
        if isinstance(data, Nothing):
            said = textwrap.wrap(data.said, max(8, width))
            return [
                *(line((part, "$text-success" if data.good else "$text-muted")) for part in said),
                *(quiet(part) for text in data.costly for part in ("", *textwrap.wrap(printable(text), max(8, width)))),
            ]
        place = data.place
        inside = "".join(f"  {printable(part)}" for part in (place.func, place.module) if part)
        path = f"{place.file}:{place.line}" if place.file else "(line unknown)"
        path = shorten(path, max(width - len(inside), width // 2), keep_end=True)
        out = [line((shorten(path + inside, width), "$text-muted"))]
        if place.code:
            code = highlight(printable(place.code), language="python").wrap(max(8, width - 4))
            out += [line("    " if i else "  ", part) for i, part in enumerate(code)]
            if place.library:
                out.append(line((shorten(f"  in {called(place.acting)}", width), "$text-muted")))
            out.append(line(""))
        out += self._labelled("cause", data.cause, width)
        for part in data.parts:
            out += self._labelled(f"with a {part.kind}", f"{duration(part.cost_s)} of the cost: {part.cause}", width)
        out += self._labelled("advice", data.advice, width, "$text-success")
        if data.change is not None:
            out += self._labelled("change", f"{data.change.what}: {data.change.old} → {data.change.new}", width)
        if data.operation:
            out += self._labelled("operation", data.operation, width)
        if data.remedy:
            out.append(line(""))
            for text in data.remedy.splitlines():
                code = highlight(printable(text), language="python").wrap(max(8, width - 2))
                out += [line("  ", part) for part in code]
            out.append(line(""))
        cost = f"{duration(data.cost_s)} in all"
        if 0 < data.cost_per_step_s < data.cost_s:  # equal where there are no steps
            cost += f", {duration(data.cost_per_step_s)} per step"
        out += self._labelled(
            "cost", f"{cost}, {plural(data.count, data.unit) if data.unit else f'×{data.count:,}'}", width
        )
        if data.gain_s > 0:
            gain = f"{duration(data.gain_s)} if it is fixed, predicted"
            if data.gain_last_s is not None:
                gain += f"; {duration(data.gain_last_s)} with all else fixed first"
            out += self._labelled("gain", gain, width)
        if data.rhythm:
            out += self._labelled("happens", data.rhythm, width)
        if data.values:
            seen = ", ".join(f"{value} ×{count:,}" for value, count in data.values)
            out += self._labelled("values", seen, width)
        for number, fact in enumerate(data.evidence):
            out += self._labelled("" if number else "evidence", fact, width, "$text-muted")
        for number, other in enumerate(data.also):
            out += self._labelled("" if number else "also", f"{place_text(other)}  {other.code}", width, "$text-muted")
        return out

    def title(self, data: Finding | Nothing) -> str:
        return label(data.kind).capitalize() if isinstance(data, Finding) else "Findings"

    def note(self, data: Finding | Nothing) -> str:
        return f"{data.severity}, {data.confidence} confidence, {data.id}" if isinstance(data, Finding) else ""

    @staticmethod
    def _labelled(name: str, value: str, width: int, style: str = "") -> list[Line]:
        """``name`` in a column of its own, ``value`` wrapped beside it."""
        column = 11 if width >= 50 else 0
        if not column:
            value = f"{name}: {value}" if name else value
        wrapped = textwrap.wrap(printable(value), max(8, width - column)) or [""]
        return [
            line((fit(name if i == 0 else "", column), "$text-muted"), (part, style)) for i, part in enumerate(wrapped)
        ]


class FindingsPanel(Vertical, Region):
    """The table above, the selected finding below."""

    TITLE = "Findings"
    HELP = "the one whose fix gives back most first; s sorts, / filters, enter explains"
    ORDER = 1
    PLACE = "left"

    _listed = True  # the table was on the screen
    _explained = ""  # id of the finding whose detail is on the screen
    _snapshot: Snapshot | None = None
    _moment: Moment | None = None
    _flash: Timer | None = None  # until the new ones are as the others

    def compose(self) -> ComposeResult:
        yield FindingsTable(_columns(), id="list", given="report")
        yield FindingDetail(id="detail")

    def show(self, snapshot: Snapshot) -> None:
        """Take the findings of the report."""
        report = snapshot.report
        if report is None:
            return
        self._snapshot = snapshot
        table, detail = self.query_one(SortedTable), self.query_one(FindingDetail)
        focused = table.has_focus or detail.has_focus
        table.display = not report.clean
        rows = [FindingRow(n, one, snapshot.last.get(one.id, -1)) for n, one in enumerate(report.findings)]
        named = list(zip(keys(report.findings), rows, strict=True))
        over, fresh, at = stopped(snapshot), snapshot.fresh, self._moment
        if at is not None:  # those of the step stand out
            over = frozenset(row.finding.id for _, row in named) - at.findings
        faint = frozenset(key for key, row in named if row.finding.id in over)
        lit = frozenset(key for key, row in named if row.finding.id in fresh)
        table.show(named, faint, lit)
        self._entitle(report.findings)
        if lit:
            if self._flash is not None:
                self._flash.stop()
            self._flash = self.set_timer(FLASH_S, table.dim)  # whatever it shows by then
        if report.clean:
            costly = tuple(one.text for one in report.accounts if one.costly and report.run.finished)
            said = without_findings(report) if report.run.finished or not report.observed else "Nothing so far."
            detail.draw(Nothing(said, good=report.observed and report.run.finished, costly=costly))
        if focused and table.display != self._listed:
            (detail if report.clean else table).focus()
        self._listed = table.display

    def _entitle(self, findings: tuple[Finding, ...]) -> None:
        table, at = self.query_one(SortedTable), self._moment
        order = f"by {table.order}" if table.order and table.order != table.given else "the largest gain first"
        hidden = f", {table.shown:,} of them shown" if table.shown < len(findings) else ""
        title = f"{len(findings):,}{hidden}, {order}"
        if at is not None:
            title = f"{sum(one.id in at.findings for one in findings):,} of {title}, at {at.bar.title}"
        table.border_title = heading("Findings", title)

    def on_sorted_table_arranged(self, event: SortedTable.Arranged) -> None:
        event.stop()
        if self._snapshot is not None and self._snapshot.report is not None:
            self._entitle(self._snapshot.report.findings)

    def explain(self, moment: Moment | None) -> None:
        """Have the findings that have a line in the step stand out, and select the first of them."""
        self._moment = moment
        if self._snapshot is None or self._snapshot.report is None:
            return
        findings = self._snapshot.report.findings
        if moment is not None:
            named = zip(keys(findings), findings, strict=True)
            key = next((key for key, one in named if one.id in moment.findings), "")
            if key:
                self.query_one(SortedTable).choose(key)
        self.show(self._snapshot)

    def stops(self) -> list[Widget]:
        """The table, unless it is empty and so hidden; the finding below."""
        return [widget for widget in (self.query_one(SortedTable), self.query_one(FindingDetail)) if widget.display]

    def table(self) -> SortedTable[FindingRow]:
        return self.query_one(SortedTable)

    def on_sorted_table_chosen(self, event: SortedTable.Chosen) -> None:
        event.stop()
        detail, finding = self.query_one(FindingDetail), event.row.finding
        detail.draw(finding)
        self.post_message(Looking(finding.place, finding.id))
        if finding.id != self._explained:
            self._explained = finding.id
            detail.scroll_home(animate=False)

    def on_sorted_table_opened(self, event: SortedTable.Opened) -> None:
        event.stop()
        self.post_message(Explain(event.row.finding))


PANEL = FindingsPanel
