"""Step times: median, 95th percentile and first step, beside the last steps as a sparkline."""

from __future__ import annotations

from itertools import groupby

from xlaprof.analysis.model import Report, StepStats
from xlaprof.text.cells import ceiling, columns, fit
from xlaprof.text.quantities import duration, plural
from xlaprof.tui.widgets.panel import Line, Panel, line, quiet

_FIGURES = 18  # cells of the column "median   12.3 ms"
_ROWS = 3


class StepsPanel(Panel[StepStats | None]):
    TITLE = "Step time"
    HELP = "a column is a step; ▲ marks those off the scale"
    ORDER = 0
    PLACE = "top"

    def pick(self, report: Report) -> StepStats | None:
        return report.steps[0] if report.steps else None

    def note(self, data: StepStats | None) -> str:
        if data is None:
            return ""
        if data.inferred:
            return f"{data.count:,} between barriers"
        return plural(data.count, f"{data.name} step")

    def lines(self, data: StepStats | None, width: int) -> list[Line]:
        if data is None or not data.count:
            return [quiet("no step has ended yet"), line(""), line("")]
        chart_width = min(width - _FIGURES - 12, len(data.recent_s)) if width >= 40 else 0
        shown = data.recent_s[-chart_width:] if chart_width > 0 else ()
        chart = columns(shown, chart_width, _ROWS)
        figures = (("median", data.median_s), ("p95", data.p95_s), ("first", data.first_s))
        scale = self._scale(shown)
        rows = []
        for (name, seconds), row, note in zip(figures, chart, scale, strict=True):
            drawn: list[str | tuple[str, str]] = [
                ("".join(c for c, _ in cells), "$warning" if above else "$primary")
                for above, group in groupby(row, key=lambda cell: cell[1])
                if (cells := list(group))
            ]
            figure = fit(duration(seconds), 9, right=True)
            rows.append(line((fit(name, 7), "$text-muted"), figure, "  ", *drawn, " ", note))
        return rows

    @staticmethod
    def _scale(shown: tuple[float, ...]) -> list[tuple[str, str]]:
        """The axis at the right of the chart: the value of full height, and the longest step where it is cut off."""
        if not shown:
            return [("", "")] * _ROWS
        top, longest = ceiling(shown), max(shown)
        cut_off = (f"▲ {duration(longest)}", "$text-warning") if longest > top else ("", "")
        return [(duration(top), "$text-muted"), cut_off, ("0", "$text-muted")]


PANEL = StepsPanel
