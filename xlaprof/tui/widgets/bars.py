"""Rows of horizontal bars."""

from __future__ import annotations

from collections.abc import Sequence

from xlaprof.text.cells import bar, fit
from xlaprof.text.quantities import duration, percent
from xlaprof.tui.widgets.panel import Line, line

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
