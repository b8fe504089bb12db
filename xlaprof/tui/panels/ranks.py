"""Ranks: all processes of one program beside each other, the one that the others wait for, and programs that differ."""

from __future__ import annotations

import textwrap

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.message import Message
from textual.widget import Widget

from xlaprof.analysis.views.compiled_apart import Apart, numbers
from xlaprof.analysis.views.ranks import Divergence, Rank, Ranks, Slow
from xlaprof.text.cells import fit, shorten
from xlaprof.text.quantities import duration, percent, plural
from xlaprof.text.strings import printable
from xlaprof.tui.panels.findings import label
from xlaprof.tui.snapshot import Fleet, RankState, Snapshot
from xlaprof.tui.widgets.bars import bar_rows
from xlaprof.tui.widgets.colours import colour
from xlaprof.tui.widgets.looking import place_text
from xlaprof.tui.widgets.panel import Line, Panel, Region, heading, line, quiet
from xlaprof.tui.widgets.status import TONES
from xlaprof.tui.widgets.table import Column, SortedTable

_NAMED = 12  # divergences with their line


class RankRow(msgspec.Struct, frozen=True):
    """A rank in the table; one without a log has no state."""

    rank: int
    state: RankState | None = None
    stat: Rank | None = None
    slow: bool = False

    @property
    def step(self) -> int:
        return self.state.report.activity.step if self.state is not None and self.state.report is not None else -1

    @property
    def findings(self) -> int:
        return len(self.state.report.findings) if self.state is not None and self.state.report is not None else -1

    @property
    def host(self) -> str:
        report = self.state.report if self.state is not None else None
        return f"{report.run.host} · {report.run.pid}" if report is not None else ""


def _seconds(row: RankRow, field: str) -> float:
    return getattr(row.stat, field) if row.stat is not None and row.stat.compared else -1.0


def _time(row: RankRow, field: str) -> str:
    seconds = _seconds(row, field)
    return duration(seconds) if seconds >= 0 else "-"


def _state(row: RankRow) -> tuple[str, str]:
    if row.state is None:
        return "no log", "text-muted"
    return row.state.status.word, TONES[row.state.status.tone].removeprefix("$")


def _columns() -> list[Column[RankRow]]:
    return [
        Column("rank", 6, lambda row: (f"{row.rank}", "text-warning" if row.slow else ""), lambda row: row.rank,
               keep=9, right=True),
        Column("state", 11, _state, lambda row: _state(row)[0], keep=8),
        Column("step", 8, lambda row: f"{row.step:,}" if row.step >= 0 else "", lambda row: row.step, keep=7,
               right=True),
        Column("a step", 8, lambda row: _time(row, "cycle_s"), lambda row: _seconds(row, "cycle_s"), keep=5,
               right=True),
        Column("itself", 8, lambda row: (_time(row, "own_s"), "text-warning" if row.slow else ""),
               lambda row: _seconds(row, "own_s"), keep=6, right=True),
        Column("waiting", 8, lambda row: _time(row, "wait_s"), lambda row: _seconds(row, "wait_s"), keep=4,
               right=True),
        Column("device", 8, lambda row: _time(row, "busy_s"), lambda row: _seconds(row, "busy_s"), keep=2,
               right=True),
        Column("findings", 9, lambda row: f"{row.findings:,}" if row.findings >= 0 else "",
               lambda row: row.findings, keep=3, right=True),
        Column("process", 0, lambda row: (row.host, "text-muted"), lambda row: row.host, keep=1, least=12),
    ]  # fmt: skip


class RanksTable(SortedTable[RankRow]):
    """Ranks that the other panels can show."""

    BINDINGS = [Binding("enter", "select_cursor", "Show", key_display="enter")]  # noqa: RUF012  # Textual types it as a list


class RanksPanel(Container, Region):
    """A row for each rank; beside it, or below, what is to be said of them."""

    TITLE = "Ranks"
    HELP = "of 'xlaprof live DIR': itself: the host works, by itself; waiting: for its device or other ranks"
    ORDER = 16
    PLACE = "page"
    LIVE = True
    KEY = "r"

    class Chosen(Message):
        """The user wants to see this rank in the other panels."""

        def __init__(self, path: str) -> None:
            super().__init__()
            self.path = path

    _fleet: Fleet | None = None

    def compose(self) -> ComposeResult:
        yield RanksTable(_columns(), id="ranks-table", given="rank")
        yield RanksDetail(id="ranks-detail")

    def show(self, snapshot: Snapshot) -> None:
        """Take the ranks of the program."""
        fleet = snapshot.fleet
        if fleet is None:
            return
        self._fleet = fleet
        table = self.query_one(SortedTable)
        stats = {one.path: one for one in fleet.ranks.ranks}
        slow = fleet.ranks.slow
        rows = [
            (one.path, RankRow(one.rank, one, stats.get(one.path), slow is not None and slow.path == one.path))
            for one in fleet.states
        ]
        rows += [(f"no log of rank {number}", RankRow(number)) for number in fleet.ranks.missing]
        rows.sort(key=lambda one: one[1].rank)
        table.show(rows)
        table.border_title = heading("Ranks", _note(fleet, snapshot.path))
        self._explain(table.row)

    def _explain(self, row: RankRow | None) -> None:
        if self._fleet is not None:
            stat = row.stat if row is not None and row.stat is not None and row.stat.compared else None
            self.query_one(RanksDetail).draw(Seen(self._fleet.ranks, stat))

    def table(self) -> SortedTable[RankRow]:
        return self.query_one(SortedTable)

    def stops(self) -> list[Widget]:
        return [self.query_one(SortedTable), self.query_one(RanksDetail)]

    def on_sorted_table_chosen(self, event: SortedTable.Chosen) -> None:
        event.stop()
        self._explain(event.row)

    def on_sorted_table_opened(self, event: SortedTable.Opened) -> None:
        event.stop()
        if event.row.state is not None:
            self.post_message(self.Chosen(event.row.state.path))


def _note(fleet: Fleet, path: str) -> str:
    shown = next((one.rank for one in fleet.states if one.path == path), -1)
    notes = [f"{len(fleet.states):,} of {fleet.ranks.world:,}"]
    if fleet.others:
        notes.append(f"{plural(fleet.others, 'earlier program')} in the folder left out")
    notes.append(f"the other panels show rank {shown}; enter: another")
    return ", ".join(notes)


class Seen(msgspec.Struct, frozen=True):
    """All that the detail depends on."""

    ranks: Ranks
    chosen: Rank | None


class RanksDetail(Panel[Seen]):
    """The slowest rank and why, where the chosen one's time goes, and programs that only some ranks compiled."""

    TITLE = "Skew"

    def note(self, data: Seen) -> str:
        ranks = data.ranks
        return f"in steps {ranks.first:,} to {ranks.last:,}" if ranks.first >= 0 else ""

    def lines(self, data: Seen, width: int) -> list[Line]:
        wide, ranks = max(8, width), data.ranks
        compared = sum(one.compared for one in ranks.ranks)
        out: list[Line] = []
        if ranks.slow is not None:
            out += _slowest(ranks.slow, wide)
        elif compared > 1:
            said = f"No rank is later than the others: {compared:,} compared, over the steps that all of them have."
            out += [line((part, "$text-success")) for part in textwrap.wrap(said, wide)]
        else:
            said = "Ranks are compared once two of them have steps of the same numbers."
            out += [quiet(part) for part in textwrap.wrap(said, wide)]
        if data.chosen is not None:
            dark = self.app.current_theme.dark if self.is_attached else True
            one = data.chosen
            out += [line(""), line((f"A step of rank {one.rank}: {duration(one.cycle_s)}", "bold"))]
            parts = [*one.parts, ("waiting", one.wait_s)]
            rows = [(name, seconds, colour("transfer wait" if name == "waiting" else name, dark))
                    for name, seconds in parts if seconds >= 0.001 * one.cycle_s]  # fmt: skip
            out += bar_rows(rows, one.cycle_s or 1.0, width)
        if len(ranks.ranks) > 1:
            out.append(line(""))
            for still in ranks.unended:
                out += [line((part, "$text-warning")) for part in textwrap.wrap(printable(still.told), wide)]
            out += _diverging(ranks, wide)
        return out


def _slowest(slow: Slow, width: int) -> list[Line]:
    how = "which wait for it" if slow.waited_for else "which go on without it"
    said = f"Rank {slow.rank} is the slowest: {duration(slow.lag_s)} later in each step than the others, {how}"
    out = [line((part, "bold $text-warning")) for part in textwrap.wrap(f"{said} ({percent(slow.share)}).", width)]
    for name, here, others in slow.parts:
        out.append(line(f"  {fit(name, 22)}", (f"{duration(here)}, {duration(others)} on the others", "")))
    if (finding := slow.finding) is not None:
        where = f"{label(finding.kind)} at {place_text(finding.place)}"
        out += [
            line(part)
            for part in textwrap.wrap(
                f"It has the finding {where}, which costs {duration(slow.beyond_s)} more than on the others:", width
            )
        ]
        if finding.place.code:
            out.append(line("    ", (shorten(printable(finding.place.code), width - 4), "bold")))
        out += [line((part, "$text-success")) for part in textwrap.wrap(printable(finding.advice), width)]
    return out


def _diverging(ranks: Ranks, width: int) -> list[Line]:
    if not ranks.divergences and not ranks.functions:
        return [quiet(part) for part in textwrap.wrap("All ranks have compiled the same programs.", width)]
    out = [part for one in ranks.functions[:_NAMED] for part in _apart(one, width)]
    if len(ranks.functions) > _NAMED:
        out.append(quiet(f"and {len(ranks.functions) - _NAMED:,} more"))
    return out + _programs(ranks.divergences, width) if ranks.divergences else out


def _apart(one: Apart, width: int) -> list[Line]:
    """A function of torch.compile that ranks have not compiled alike."""
    out = [line((shorten(printable(f"{one.name}  {place_text(one.place)}"), width), "bold"))]
    for said in one.told:
        out += [line((f"  {part}", "$text-warning")) for part in textwrap.wrap(printable(said), width - 2)]
    return out


def _programs(found: tuple[Divergence, ...], width: int) -> list[Line]:
    out = [line((f"{plural(len(found), 'program')} that only some ranks compiled", "bold"))]
    for one in found[:_NAMED]:
        step = f"in step {one.step:,}" if one.step >= 0 else "before the first step"
        said = f"{one.what}: {numbers(one.ranks)}, {step}, {duration(one.compile_s)}; not {numbers(one.others)}"
        out += [line((part, "$text-warning")) for part in textwrap.wrap(printable(said), width)]
        if one.place.line:
            code = f"  {place_text(one.place)}  {one.place.code}"
            out.append(line((shorten(printable(code), width), "$text-muted")))
        if one.change:
            wrapped = textwrap.wrap(printable(one.change), width - 2)
            out += [line((f"  {part}", "$text-muted")) for part in wrapped]
    if len(found) > _NAMED:
        out.append(quiet(f"and {len(found) - _NAMED:,} more"))
    return out


PANEL = RanksPanel
