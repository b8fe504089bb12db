"""Where the host's time goes, and beside it how busy the device was."""

from __future__ import annotations

from xlaprof.analysis.model import Report, TimeSplit
from xlaprof.text.parts import parts
from xlaprof.text.quantities import duration
from xlaprof.tui.widgets.bars import bar_rows
from xlaprof.tui.widgets.panel import Line, Panel, line, quiet


class TimePanel(Panel[TimeSplit | None]):
    TITLE = "Where time goes"
    HELP = "the host's time; the device works beside it"
    ORDER = 2

    def pick(self, report: Report) -> TimeSplit | None:
        return report.steps[0].split if report.steps else None

    def note(self, data: TimeSplit | None) -> str:
        return f"{duration(data.total_s)} of steps" if data and data.total_s > 0 else ""

    def lines(self, data: TimeSplit | None, width: int) -> list[Line]:
        if data is None or data.total_s <= 0:
            return [quiet("no step has ended yet")]
        host = [(name, seconds, "$primary") for name, seconds in parts(data)]
        rows = bar_rows([*host, ("device busy", data.device_busy_s, "$success")], data.total_s, width)
        # The device works while the host does: it is no part of the sum, so it stands apart.
        return [*rows[:-1], line(""), rows[-1]]


PANEL = TimePanel
