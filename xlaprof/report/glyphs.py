"""Text made fit for a terminal: bars, sparklines, and strings from a log that may hold anything."""

from __future__ import annotations

from collections.abc import Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """A horizontal bar of ``share`` (0..1) of ``width`` cells, to an eighth of a cell; something is never nothing."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    full, part = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[part] if part else "")


def sparkline(values: Sequence[float], width: int) -> str:
    """The last ``width`` values as little columns from zero to their maximum."""
    last = values[-width:]
    most = max(last, default=0.0)
    if most <= 0:
        return _LEVELS[0] * len(last)
    return "".join(_LEVELS[min(7, int(8 * max(value, 0.0) / most))] for value in last)


def printable(text: str) -> str:
    """``text`` on one line, without control characters or halves of surrogate pairs."""
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() else " " if ch.isspace() else "\N{REPLACEMENT CHARACTER}" for ch in text)


def shorten(text: str, width: int, keep_end: bool = False) -> str:
    """``text`` in at most ``width`` characters, an ellipsis in place of what is left out."""
    if len(text) <= width:
        return text
    if width < 2:
        return text[: max(width, 0)]
    return f"…{text[-(width - 1) :]}" if keep_end else f"{text[: width - 1]}…"
