"""Where the time of a step goes, on average, and beside it how busy the device was: the report's own rows."""

from __future__ import annotations

from xlaprof.analysis.model import Report, StepStats
from xlaprof.analysis.views.course import Bar
from xlaprof.text.parts import mean_parts
from xlaprof.text.quantities import duration
from xlaprof.tui.widgets.bars import bar_rows
from xlaprof.tui.widgets.colours import colour
from xlaprof.tui.widgets.panel import Line, Panel, line, quiet


class TimePanel(Panel[StepStats | Bar | None]):
    TITLE = "Where a step's time goes"
    HELP = "the host's time in a step on average; the device works beside it"
    ORDER = 2

    _at: Bar | None = None

    def pick(self, report: Report) -> StepStats | Bar | None:
        return self._at if self._at is not None else report.steps[0] if report.steps else None

    def follow(self, bar: Bar | None) -> None:
        """Split the step under the cursor."""
        self._at = bar
        self.pick_again()

    def note(self, data: StepStats | Bar | None) -> str:
        if isinstance(data, Bar):
            return f"at {data.title}: {duration(data.mean_s)}" + (", on average" if data.count > 1 else "")
        if data is None or data.split.total_s <= 0:
            return ""
        without = ", without the first" if data.count > 1 else ""
        return f"mean of {_averaged(data):,}{without}: {duration(data.split.total_s / _averaged(data))}"

    def lines(self, data: StepStats | Bar | None, width: int) -> list[Line]:
        if isinstance(data, Bar):
            named, busy, whole = data.named(), data.busy_s / data.count, data.mean_s
        elif data is None or data.split.total_s <= 0:
            return [quiet("no step has ended yet")]
        else:
            count = _averaged(data)
            named = mean_parts(data.split, count)
            busy, whole = data.split.device_busy_s / count, data.split.total_s / count
        dark = self.app.current_theme.dark if self.is_attached else True
        host = [(name, seconds, colour(name, dark)) for name, seconds in named]
        rows = bar_rows([*host, ("device busy", busy, "$success")], whole, width)
        # The device works while the host does: it is no part of the sum, so it stands apart.
        return [*rows[:-1], line(""), rows[-1]]


def _averaged(data: StepStats) -> int:
    return max(1, data.count - 1)


PANEL = TimePanel
