"""Where the time of a step goes, on average, and beside it how busy the device was: the report's own rows."""

from __future__ import annotations

from xlaprof.analysis.model import Report, StepStats
from xlaprof.text.parts import mean_parts
from xlaprof.text.quantities import duration
from xlaprof.tui.widgets.bars import bar_rows
from xlaprof.tui.widgets.panel import Line, Panel, line, quiet


class TimePanel(Panel[StepStats | None]):
    TITLE = "Where a step's time goes"
    HELP = "the host's time in a step on average; the device works beside it"
    ORDER = 2

    def pick(self, report: Report) -> StepStats | None:
        return report.steps[0] if report.steps else None

    def note(self, data: StepStats | None) -> str:
        if data is None or data.split.total_s <= 0:
            return ""
        without = ", without the first" if data.count > 1 else ""
        return f"mean of {_averaged(data):,}{without}: {duration(data.split.total_s / _averaged(data))}"

    def lines(self, data: StepStats | None, width: int) -> list[Line]:
        if data is None or data.split.total_s <= 0:
            return [quiet("no step has ended yet")]
        count = _averaged(data)
        host = [(name, seconds, "$primary") for name, seconds in mean_parts(data.split, count)]
        device = ("device busy", data.split.device_busy_s / count, "$success")
        rows = bar_rows([*host, device], data.split.total_s / count, width)
        # The device works while the host does: it is no part of the sum, so it stands apart.
        return [*rows[:-1], line(""), rows[-1]]


def _averaged(data: StepStats) -> int:
    return max(1, data.count - 1)


PANEL = TimePanel
