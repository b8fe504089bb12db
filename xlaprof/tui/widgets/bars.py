"""Panels of horizontal bars: where the time of the steps goes, and what the device waited for."""

from __future__ import annotations

from collections.abc import Sequence

from xlaprof.analysis.model import IdleStat, Report, TimeSplit
from xlaprof.tui import text
from xlaprof.tui.widgets.panel import Line, Panel, line, quiet

#: The parts of a TimeSplit, called as the causes of idle time are, in the order of a step.
PARTS = (
    ("data wait", "data_wait_s"),
    ("tracing", "tracing_s"),
    ("compile", "compile_s"),
    ("upload", "upload_s"),
    ("dispatch", "execute_s"),
    ("transfer wait", "transfer_wait_s"),
    ("fallback", "fallback_s"),
    ("garbage collection", "gc_s"),
    ("named scopes", "scopes_s"),
    ("other", "other_s"),
)
_CAUSES, _WORTH_A_ROW = 8, 0.02  # causes of idle time told one by one: so many, above this share
_SECONDS, _SHARE = 8, 6  # cells of "  1.82 s" and of "  41 %"


def bar(part: float, whole: float, width: int) -> str:
    """A horizontal bar, ``part`` of ``whole`` long, in halves of a cell; what exists is never invisible."""
    if part <= 0 or whole <= 0 or width <= 0:
        return " " * max(width, 0)
    halves = max(1, min(2 * width, round(2 * width * part / whole)))
    return ("━" * (halves // 2) + "╸" * (halves % 2)).ljust(width)


def bar_rows(rows: Sequence[tuple[str, float, str]], whole: float, width: int) -> list[Line]:
    """A line per (name, seconds, colour): name, bar, seconds, share of ``whole``; the longest fills its column."""
    figures = _SECONDS + _SHARE
    name_width = min(max((len(name) for name, _, _ in rows), default=0), max(8, width - figures - 6))
    bar_width = min(width - name_width - figures - 2, 60)
    longest = max((seconds for _, seconds, _ in rows), default=0.0)
    return [
        line(
            text.fit(name, name_width),
            (f" {bar(seconds, longest, bar_width)} " if bar_width >= 4 else " ", colour),
            text.fit(text.duration(seconds), _SECONDS, right=True),
            (text.fit(text.percent(seconds, whole), _SHARE, right=True), "$text-muted"),
        )
        for name, seconds, colour in rows
    ]


class TimePanel(Panel[TimeSplit | None]):
    """Where the host's time goes, and beside it how busy the device was."""

    TITLE = "Where time goes"

    def pick(self, report: Report) -> TimeSplit | None:
        return report.steps[0].split if report.steps else None

    def note(self, data: TimeSplit | None) -> str:
        return f"{text.duration(data.total_s)} of steps" if data and data.total_s > 0 else ""

    def lines(self, data: TimeSplit | None, width: int) -> list[Line]:
        if data is None or data.total_s <= 0:
            return [quiet("no step has ended yet")]
        host = [(name, getattr(data, field), "$primary") for name, field in PARTS if getattr(data, field) > 0]
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
        return f"{text.percent(data.idle_s, data.window_s)} of {text.duration(data.window_s)}"

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
