"""What the device was waiting for."""

from __future__ import annotations

from xlaprof.analysis.model import IdleStat, Report
from xlaprof.text.quantities import duration, percent
from xlaprof.tui.widgets.bars import bar_rows
from xlaprof.tui.widgets.panel import Line, Panel, quiet

_CAUSES, _WORTH_A_ROW = 8, 0.02  # at most so many causes get a row of their own, each above this share of idle time


class IdlePanel(Panel[IdleStat]):
    TITLE = "Device idle"
    HELP = "the device had nothing to do, and why"
    ORDER = 3

    def pick(self, report: Report) -> IdleStat:
        return report.idle

    def note(self, data: IdleStat) -> str:
        if data.window_s <= 0:
            return ""
        return f"{percent(data.idle_s / data.window_s)} of {duration(data.window_s)}"

    def lines(self, data: IdleStat, width: int) -> list[Line]:
        if data.window_s <= 0:
            return [quiet("nothing has run on the device yet")]
        if data.idle_s <= 0:
            return [quiet("the device was never idle")]
        rows = [(cause, seconds, "$warning") for cause, seconds in data.causes]
        kept = max(1, sum(seconds >= _WORTH_A_ROW * data.idle_s for _, seconds, _ in rows[:_CAUSES]))
        if len(rows) > kept + 1:
            rest = rows[kept:]
            rows[kept:] = [(f"{len(rest)} smaller", sum(seconds for _, seconds, _ in rest), "$text-muted")]
        return bar_rows(rows, data.idle_s, width)


PANEL = IdlePanel
