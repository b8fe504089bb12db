"""Two lines between which plain Python ran: which to show, and how to write them."""

from __future__ import annotations

from xlaprof.analysis.model import Place
from xlaprof.text.strings import file_line


def culprit(before: Place, after: Place) -> Place:
    """The one line to show for a stretch of plain Python between two lines.

    The code that ran lies after ``before`` and up to ``after``. Going forward it begins at the first; going back to the
    head of a loop it mostly is the beginning of the loop's body, which prepares the second.
    """
    if not before.line:
        return after
    if not after.line:
        return before
    back = before.file == after.file and before.func == after.func and after.line < before.line
    return after if back else before


def span(before: Place, after: Place) -> str:
    """Two lines, short: "train.py:12-19", "train.py:40 -> data.py:7"."""
    if not before.line or not after.line:
        known = before if before.line else after
        return short(known) if known.line else "between unknown lines"
    if before.file == after.file:
        if before.line == after.line:
            return short(before)
        sign = "-" if before.line < after.line else " -> "
        return f"{short(before)}{sign}{after.line}"
    return f"{short(before)} -> {short(after)}"


def short(place: Place) -> str:
    """File name and line: "train.py:12"."""
    return file_line(place.file, place.line)
