"""A sparkline of step times whose scale one slow step cannot flatten."""

from __future__ import annotations

from collections.abc import Sequence

EIGHTHS = " ▁▂▃▄▅▆▇█"


def ceiling(values: Sequence[float]) -> float:
    """The value drawn at full height: the largest, but at most three times the median.

    Longer steps are drawn at full height and marked (see :func:`bars`), so that compilations of seconds
    leave the jitter of millisecond steps visible.
    """
    if not values:
        return 0.0
    ordered = sorted(values)
    median = ordered[(len(ordered) - 1) // 2]
    return min(ordered[-1], 3 * median) if median > 0 else ordered[-1]


def bars(values: Sequence[float], width: int, height: int) -> list[list[tuple[str, bool]]]:
    """The last ``width`` values as ``height`` rows of (character, value is above the scale), top row first.

    One column is one step, the newest at the right end. Every step has at least an eighth of a cell, so
    that "very short" and "no step" differ.
    """
    shown = list(values)[-width:] if width > 0 else []
    top = ceiling(shown)
    rows: list[list[tuple[str, bool]]] = []
    for row in range(height - 1, -1, -1):
        cells = [(" ", False)] * (width - len(shown))
        for value in shown:
            eighths = max(1, round(8 * height * min(value, top) / top)) if top > 0 else 1
            cells.append((EIGHTHS[max(0, min(8, eighths - 8 * row))], value > top))
        rows.append(cells)
    return rows
