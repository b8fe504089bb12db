"""Log: the last events as they were recorded, each on a line; / filters them."""

from __future__ import annotations

import msgspec
from textual.app import ComposeResult
from textual.containers import Container
from textual.widget import Widget

from xlaprof.events import AnyEvent
from xlaprof.text.quantities import duration, plural
from xlaprof.tui.snapshot import Snapshot
from xlaprof.tui.widgets.panel import Region, heading
from xlaprof.tui.widgets.table import Column, SortedTable

_KEPT = ("t", "dur", "tid")  # columns of their own
_SHOWN = 500  # events


class Event(msgspec.Struct, frozen=True):
    """An event as a row."""

    at_s: float
    kind: str
    dur_s: float
    fields: str


def _columns() -> list[Column[Event]]:
    return [
        Column("seconds", 12, lambda one: f"{one.at_s:.6f}", lambda one: one.at_s, keep=8, right=True),
        Column("kind", 10, lambda one: one.kind, lambda one: one.kind, keep=9),
        Column("took", 8, lambda one: duration(one.dur_s) if one.dur_s else "", lambda one: one.dur_s, keep=7,
               right=True),
        Column("fields", 0, lambda one: (one.fields, "text-muted"), lambda one: one.fields, keep=6, least=16),
    ]  # fmt: skip


class LogPanel(Container, Region):
    """The newest event is the last row."""

    TITLE = "Log"
    HELP = "the last events as they were recorded"
    ORDER = 20
    PLACE = "page"
    LIVE = True

    _recent: tuple[AnyEvent, ...] = ()

    def compose(self) -> ComposeResult:
        yield SortedTable(_columns(), id="log-table", given="time")

    def show(self, snapshot: Snapshot) -> None:
        """Take the last events; they become rows while they are on the screen only."""
        recent, table = snapshot.recent[-_SHOWN:], self.query_one(SortedTable)
        if not self.has_class("-shown") or recent == self._recent or snapshot.report is None:
            return
        self._recent = recent
        begin = next((one.t for one in recent if hasattr(one, "t")), 0)
        table.show([(f"{n}", _row(one, begin)) for n, one in enumerate(recent)])
        table.border_title = heading(
            "Log", f"the last {plural(len(recent), 'event')} of {snapshot.report.run.events:,}"
        )

    def table(self) -> SortedTable[Event]:
        return self.query_one(SortedTable)

    def stops(self) -> list[Widget]:
        return [self.query_one(SortedTable)]


def _row(event: AnyEvent, begin: int) -> Event:
    fields = msgspec.structs.asdict(event)
    shown = ", ".join(f"{name}={value!r}" for name, value in fields.items() if name not in _KEPT and value)
    kind = str(event.__struct_config__.tag)
    return Event((fields.get("t", begin) - begin) / 1e9, kind, fields.get("dur", 0) / 1e9, shown[:400])


PANEL = LogPanel
