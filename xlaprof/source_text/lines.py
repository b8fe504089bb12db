"""The text of a line, and the loops around it."""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterator

LOOPS = ("for ", "while ", "async for ")
FUNCTIONS = ("def ", "async def ", "class ")
_LONGEST_LINE = 400
_LARGEST_SOURCE = 16 << 20


def source_line(file: str, line: int) -> str:
    """The text of a line, stripped; empty where there is no source."""
    text = linecache.getline(file, line)
    if not text and os.path.isfile(file):
        text = _lenient_line(file, line)
    return text.strip()[:_LONGEST_LINE]


def loop_line(file: str, line: int) -> int:
    """Line of the innermost ``for`` or ``while`` around a line, in its function; 0 where none is found."""
    return next(loop_lines(file, line), 0)


def loop_lines(file: str, line: int) -> Iterator[int]:
    """Lines of all loops around a line, in its function, innermost first.

    The head of a loop is part of the loop: it draws the next item.
    """
    lines = linecache.getlines(file)
    if not 0 < line <= len(lines):
        return
    text = lines[line - 1]
    if text.lstrip().startswith(LOOPS):
        yield line
    column = indent(text)
    for i in range(line - 2, -1, -1):
        if not column:
            break
        code = lines[i].lstrip()
        if not code or code.startswith("#"):
            continue
        if (found := indent(lines[i])) < column:
            if code.startswith(LOOPS):
                yield i + 1
            if code.startswith(FUNCTIONS):
                break
            column = found


def is_in_loop(file: str, line: int, head: int) -> bool:
    """Whether ``line`` is in the loop whose head is the line ``head``."""
    if line <= head:
        return line == head
    lines = linecache.getlines(file)[head - 1 : line]
    codes = [text for text in lines if text.strip() and not text.lstrip().startswith("#")]
    return bool(codes) and all(indent(text) > indent(codes[0]) for text in codes[1:])


def indent(text: str) -> int:
    """The columns before a line's first sign."""
    text = text.expandtabs()
    return len(text) - len(text.lstrip())


def _lenient_line(file: str, line: int) -> str:
    """A line of a file whose bytes do not fit its declared encoding."""
    try:
        if os.path.getsize(file) > _LARGEST_SOURCE:
            return ""
        with open(file, "rb") as source:
            lines = source.read().splitlines()
    except OSError:  # unreadable, or gone since: there is no text to show
        return ""
    return lines[line - 1].decode("cp1252", "replace") if 0 < line <= len(lines) else ""
