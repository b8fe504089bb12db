"""Transfers: values that the host read from the device, and what it copied there, by line."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Container
from textual.widget import Widget

from xlaprof.analysis.views.details import Transfer
from xlaprof.analysis.views.moment import Moment
from xlaprof.text.quantities import duration, percent, plural, size_text
from xlaprof.tui.snapshot import Snapshot
from xlaprof.tui.widgets.looking import Looking, place_text
from xlaprof.tui.widgets.panel import Region, heading
from xlaprof.tui.widgets.table import Column, SortedTable


def _columns() -> list[Column[Transfer]]:
    return [
        Column("line", 20, lambda one: place_text(one.place), lambda one: (one.place.file, one.place.line), keep=9),
        Column("code", 0, lambda one: (one.place.code, "text-muted"), lambda one: one.place.code, keep=5, least=14),
        Column("way", 4, lambda one: "to" if one.up else "from", lambda one: one.up, keep=4),
        Column("operation", 26, lambda one: one.operation, lambda one: one.operation, keep=0),
        Column("count", 8, lambda one: f"{one.count:,}", lambda one: one.count, keep=6, right=True),
        Column("total", 9, lambda one: duration(one.total_s), lambda one: one.total_s, keep=8, right=True),
        Column("waiting", 8, _waiting, lambda one: one.wait_s, keep=3, right=True),
        Column("size", 9, lambda one: size_text(one.bytes) if one.bytes >= 0 else "", lambda one: one.bytes, keep=2,
               right=True),
        Column("steps", 8, lambda one: f"{one.steps:,}" if one.steps >= 0 else "", lambda one: one.steps, keep=1,
               right=True),
    ]  # fmt: skip


def _waiting(one: Transfer) -> str:
    return percent(one.wait_s / one.total_s) if one.total_s > 0 and one.wait_s >= 0 else ""


def _summed(name: str, transfers: Sequence[Transfer]) -> str:
    """ "61 reads in 2.10 s" """
    return f"{plural(sum(one.count for one in transfers), name)} in {duration(sum(one.total_s for one in transfers))}"


class TransfersPanel(Container, Region):
    """One row for each line and operation, the dearest first."""

    TITLE = "Transfers"
    HELP = "reads from the device and uploads to it, by line; waiting: for the device to compute the value"
    ORDER = 15
    PLACE = "page"

    _whole: tuple[Transfer, ...] = ()  # of the run
    _moment: Moment | None = None

    def compose(self) -> ComposeResult:
        yield SortedTable(_columns(), id="transfers-table", given="total time")

    def show(self, snapshot: Snapshot) -> None:
        """Take the transfers of the run."""
        self._whole = snapshot.details.transfers
        self._fill()

    def explain(self, moment: Moment | None) -> None:
        """Show what was read in the step."""
        self._moment = moment
        self._fill()

    def _fill(self) -> None:
        at, inside = self._moment, self._moment.inside if self._moment is not None else None
        transfers = inside.transfers if inside is not None else self._whole
        table = self.query_one(SortedTable)
        table.show([(f"{n}", one) for n, one in enumerate(transfers)])
        ways = [(name, [one for one in transfers if one.up == up]) for name, up in (("read", False), ("upload", True))]
        note = ", ".join(_summed(name, some) for name, some in ways if some)
        if at is not None:
            about = "about " * (inside is not None and inside.about)
            note = f"at {at.bar.title}: {about}{note}" if transfers else f"none at {at.bar.title}"
        elif not transfers:
            note = "none so far"
        table.border_title = heading("Transfers", note)

    def table(self) -> SortedTable[Transfer]:
        return self.query_one(SortedTable)

    def stops(self) -> list[Widget]:
        return [self.query_one(SortedTable)]

    def on_sorted_table_chosen(self, event: SortedTable.Chosen) -> None:
        event.stop()
        self.post_message(Looking(event.row.place))


PANEL = TransfersPanel
