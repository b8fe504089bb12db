"""How quantities, places and long strings are written on the screen."""

from __future__ import annotations

from pathlib import PurePath

from rich.cells import cell_len, set_cell_size

from xlaprof.analysis.model import Place

ELLIPSIS = "…"
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def duration(seconds: float) -> str:
    """A length of time in three significant digits: "12.3 ms", "1.82 s", "2m 05s", "1h 02m", "4d 04h"."""
    if seconds <= 0:
        return "0 s"
    if seconds >= 100 * 3600:
        hours = round(seconds / 3600)
        return f"{hours // 24}d {hours % 24:02}h"
    if seconds >= 3599.5:
        minutes = round(seconds / 60)
        return f"{minutes // 60}h {minutes % 60:02}m"
    if seconds >= 99.95:  # what three digits would write as "100 s" reads better in minutes
        return f"{round(seconds) // 60}m {round(seconds) % 60:02}s"
    # 999.6 µs is "1.00 ms": the unit is the one in which the rounded value is at least 1.
    unit, name = next((u for u in _UNITS if seconds >= u[0] * 0.9995), _UNITS[-1])
    value = seconds / unit
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {name}"


def elapsed(seconds: float) -> str:
    """A running time, as coarse as a person reads a clock that moves: "0.4 s", "12 s", "2m 05s"."""
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f} s"
    return f"{round(seconds)} s" if seconds < 99.5 else duration(seconds)


def percent(part: float, whole: float) -> str:
    """``part`` of ``whole`` as "41 %"; "<1 %" for what is there but would round to nothing."""
    if whole <= 0 or part <= 0:
        return "0 %"
    ratio = 100 * part / whole
    return "<1 %" if ratio < 0.5 else f"{ratio:.0f} %"


def count(number: int) -> str:
    """A count in groups of three: "1,234,567"."""
    return f"{number:,}"


def size(octets: int) -> str:
    """The size of a file: "0.4 MB", "145 MB"."""
    megabytes = octets / 1e6
    return f"{megabytes:.0f} MB" if megabytes >= 9.95 else f"{megabytes:.1f} MB"


def plain(text: str) -> str:
    """``text`` on one line, without the control characters that a name or a line in a log may contain."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)


def cut(text: str, width: int) -> str:
    """``text`` in at most ``width`` cells, its end replaced by an ellipsis where it is longer."""
    text = plain(text)
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + ELLIPSIS if width > 0 else ""


def cut_front(text: str, width: int) -> str:
    """``text`` in at most ``width`` cells, its beginning replaced by an ellipsis: of a path the end counts."""
    text = plain(text)
    if cell_len(text) <= width:
        return text
    kept = text[-max(width - 1, 0) :] if width > 1 else ""
    while cell_len(kept) > width - 1 and kept:
        kept = kept[1:]
    return ELLIPSIS + kept if width > 0 else ""


def fit(text: str, width: int, right: bool = False) -> str:
    """``text`` in exactly ``width`` cells: cut with an ellipsis, or padded (on the left if ``right``)."""
    text = cut(text, width)
    space = " " * max(0, width - cell_len(text))
    return space + text if right else text + space


def where(place: Place, width: int = 1000) -> str:
    """A line of code, short: "decoder.py:88"; "" when it is not known. The number outlives the name."""
    if not place.file:
        return ""
    number = f":{place.line}"
    return cut(cut(PurePath(place.file).name, max(1, width - len(number))) + number, width)
