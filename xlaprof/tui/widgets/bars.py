"""Panels of horizontal bars: where the time of the steps goes, and what the device waited for."""

from __future__ import annotations

from collections.abc import Sequence

from xlaprof.analysis.model import IdleStat, Report, TimeSplit
from xlaprof.text.cells import bar, fit
from xlaprof.text.parts import parts
from xlaprof.text.quantities import duration, percent
from xlaprof.tui.widgets.panel import Line, Panel, line, quiet

_CAUSES, _WORTH_A_ROW = 8, 0.02  # causes of idle time told one by one: so many, above this share
_SECONDS, _SHARE = 8, 6  # cells of "  1.82 s" and of "  41 %"


def bar_rows(rows: Sequence[tuple[str, float, str]], whole: float, width: int) -> list[Line]:
    """A line per (name, seconds, colour): name, bar, seconds, share of ``whole``; the longest fills its column."""
    figures = _SECONDS + _SHARE
    name_width = min(max((len(name) for name, _, _ in rows), default=0), max(8, width - figures - 6))
    bar_width = min(width - name_width - figures - 2, 60)
    longest = max((seconds for _, seconds, _ in rows), default=0.0) or 1.0
    return [
        line(
            fit(name, name_width),
            (f" {fit(bar(seconds / longest, bar_width), bar_width)} " if bar_width >= 4 else " ", colour),
            fit(duration(seconds), _SECONDS, right=True),
            (fit(percent(seconds / whole), _SHARE, right=True), "$text-muted"),
        )
        for name, seconds, colour in rows
    ]


class TimePanel(Panel[TimeSplit | None]):
    """Where the host's time goes, and beside it how busy the device was."""

    TITLE = "Where time goes"

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


class IdlePanel(Panel[IdleStat]):
    """What the device was waiting for."""

    TITLE = "Device idle"

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
