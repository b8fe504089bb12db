"""Transfers: values that the host read from the device, by line."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container
from textual.widget import Widget

from xlaprof.analysis.views.details import Transfer
from xlaprof.text.quantities import duration, percent, plural, size_text
from xlaprof.tui.snapshot import Snapshot
from xlaprof.tui.widgets.looking import Looking, place_text
from xlaprof.tui.widgets.panel import Region, heading
from xlaprof.tui.widgets.table import Column, SortedTable


def _columns() -> list[Column[Transfer]]:
    return [
        Column("line", 20, lambda one: place_text(one.place), lambda one: (one.place.file, one.place.line), keep=9),
        Column("code", 0, lambda one: (one.place.code, "text-muted"), lambda one: one.place.code, keep=5, least=14),
        Column("operation", 26, lambda one: one.operation, lambda one: one.operation, keep=1),
        Column("count", 8, lambda one: f"{one.count:,}", lambda one: one.count, keep=6, right=True),
        Column("total", 9, lambda one: duration(one.total_s), lambda one: one.total_s, keep=8, right=True),
        Column("waiting", 8, lambda one: percent(one.wait_s / one.total_s) if one.total_s > 0 else "",
               lambda one: one.wait_s, keep=4, right=True),
        Column("size", 9, lambda one: size_text(one.bytes), lambda one: one.bytes, keep=3, right=True),
        Column("steps", 8, lambda one: f"{one.steps:,}", lambda one: one.steps, keep=2, right=True),
    ]  # fmt: skip


class TransfersPanel(Container, Region):
    """One row for each line and operation, the dearest first."""

    TITLE = "Transfers"
    HELP = "reads from the device, by line; waiting: for the device to compute the value"
    ORDER = 15
    PLACE = "page"

    def compose(self) -> ComposeResult:
        yield SortedTable(_columns(), id="transfers-table", given="total time")

    def show(self, snapshot: Snapshot) -> None:
        """Take the transfers of the run."""
        transfers = snapshot.details.transfers
        table = self.query_one(SortedTable)
        table.show([(f"{n}", one) for n, one in enumerate(transfers)])
        reads = plural(sum(one.count for one in transfers), "read")
        note = (
            f"{reads} in {duration(sum(one.total_s for one in transfers))}" if transfers else "nothing was read so far"
        )
        table.border_title = heading("Reads from the device", note)

    def table(self) -> SortedTable[Transfer]:
        return self.query_one(SortedTable)

    def stops(self) -> list[Widget]:
        return [self.query_one(SortedTable)]

    def on_sorted_table_chosen(self, event: SortedTable.Chosen) -> None:
        event.stop()
        self.post_message(Looking(event.row.place))


PANEL = TransfersPanel
