"""Text in the cells of a terminal: shortened, padded, and drawn as bars and sparklines."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from xlaprof.text.strings import file_line, printable

ELLIPSIS = "…"
#: Eighths of a cell, as a column from its bottom and as a row from its left.
COLUMNS, ROWS = " ▁▂▃▄▅▆▇█", " ▏▎▍▌▋▊▉█"


def shorten(text: str, width: int, keep_end: bool = False) -> str:
    """Printable ``text`` in at most ``width`` cells; an ellipsis in place of its end, or its beginning."""
    text = printable(text)
    if cell_len(text) <= width:
        return text
    if width < 2:
        return ELLIPSIS[:width] if width > 0 else ""
    if not keep_end:
        return set_cell_size(text, width - 1).rstrip() + ELLIPSIS
    kept = text[-(width - 1) :]
    while cell_len(kept) > width - 1:
        kept = kept[1:]
    return ELLIPSIS + kept


def shorten_place(file: str, line: int, width: int = 1000) -> str:
    """:func:`file_line` in at most ``width`` cells, "" where the file is not known. The number outlives the name."""
    if not file:
        return ""
    name, colon, number = file_line(file, line).rpartition(":")
    return shorten(shorten(name, max(1, width - len(number) - 1)) + colon + number, width)


def fit(text: str, width: int, right: bool = False) -> str:
    """``text`` in exactly ``width`` cells: shortened, or padded (on the left if ``right``)."""
    text = shorten(text, width)
    space = " " * max(0, width - cell_len(text))
    return space + text if right else text + space


def bar(share: float, width: int) -> str:
    """A horizontal bar of ``share`` (0..1) of ``width`` cells, to an eighth of a cell; something is never nothing."""
    eighths = round(min(max(share, 0.0), 1.0) * max(width, 0) * 8)
    if share > 0 and width > 0:
        eighths = max(1, eighths)
    full, part = divmod(eighths, 8)
    return ROWS[8] * full + (ROWS[part] if part else "")


def ceiling(values: Sequence[float]) -> float:
    """The value that a sparkline draws at full height: the largest, but at most three times the median.

    Longer steps are drawn at full height and marked, so that compilations of seconds leave the jitter of millisecond
    steps visible.
    """
    if not values:
        return 0.0
    ordered = sorted(values)
    median = ordered[(len(ordered) - 1) // 2]
    return min(ordered[-1], 3 * median) if median > 0 else ordered[-1]


def columns(values: Sequence[float], width: int, height: int) -> list[list[tuple[str, bool]]]:
    """The last ``width`` values as ``height`` rows of (character, value is above the scale), top row first.

    One column is one value, the newest at the right end. Every value has at least an eighth of a cell, so
    that "very small" and "none" differ.
    """
    shown = list(values)[-width:] if width > 0 else []
    top = ceiling(shown)
    rows: list[list[tuple[str, bool]]] = []
    for row in range(height - 1, -1, -1):
        cells = [(" ", False)] * (width - len(shown))
        for value in shown:
            eighths = max(1, round(8 * height * min(value, top) / top)) if top > 0 else 1
            cells.append((COLUMNS[max(0, min(8, eighths - 8 * row))], value > top))
        rows.append(cells)
    return rows


def sparkline(values: Sequence[float], width: int) -> str:
    """The last ``width`` values as :func:`columns` of one line, no longer than there are values."""
    return "".join(character for character, _ in columns(values, min(width, len(values)), 1)[0])
