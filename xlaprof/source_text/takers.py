"""What takes the value that a line binds: "if error < tol: break" for ``error = residual.item()`` further up.

A line that gives a value its name says nothing of what needs it. The other statements of its loop do: those that use
the name, and those that use what was computed of it. After the loop nothing needs it in each turn. What a line returns
is taken by the statement that called its function, and by what takes that.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator

from xlaprof.text.strings import without_comment

from .lines import FUNCTIONS, indent, loop_line

_MOST = 6  # statements
_FAR = 200  # lines of a loop that are looked at
_WIDE = 12  # lines of a statement
_LONGEST = 200  # signs of one that is told
_NAME = r"[A-Za-z_][\w.]*"
_BINDS = re.compile(rf"([(*]*{_NAME}(?:\)*\s*,\s*[(*]*{_NAME})*\)*)\s*(?::[^=]*)?=(?!=)\s*(?=\S)")
_BRACKETS = re.compile(r"#.*|\"[^\"]*\"|'[^']*'|[()\[\]{}]")  # comments and strings hide theirs
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_TESTS = ("if ", "elif ")
_LEAVES = re.compile(r"(break|return)\b")


def takers(file: str, line: int, caller: tuple[str, int] = ("", 0)) -> tuple[str, ...]:
    """The statements of the loop around ``line``, or of the rest of its function, that take what it binds, as text.

    They come in the order in which they run, from the line on and around the loop. A test has the statement that leaves
    the loop with it, where there is one; a line that is such a test itself is its own taker. ``caller``: file and line
    of what called the line's function.
    """
    if (known := _statement_at(file, line)) is None:
        return ()
    lines, start, end = known
    text = _joined(lines, start, end)
    if text.startswith("return ") and (call := _call(*caller)):
        return (call, *(one for one in takers(*caller) if one != call))[:_MOST]
    if text.startswith(_TESTS):
        told = _told(lines, file, start, end, text)
        return (told,) if told != text else ()
    bound = _BINDS.match(text)
    if bound is None:
        return ()
    names = _split(bound[1])
    found: list[str] = []
    for first, last in _in_turn(lines, file, line, start, end):
        code = _joined(lines, first, last)
        binds = _BINDS.match(code)
        if not _mentions(code[binds.end() :] if binds else code, names):
            continue
        found.append(_told(lines, file, first, last, code)[:_LONGEST])
        if len(found) == _MOST:
            break
        if binds is not None:
            names += [one for one in _split(binds[1]) if one not in names]
    return tuple(found)


def _call(file: str, line: int) -> str:
    """The statement that a line is a part of."""
    if (known := _statement_at(file, line)) is None:
        return ""
    lines, start, end = known
    return _told(lines, file, start, end, _joined(lines, start, end))[:_LONGEST]


def _split(names: str) -> list[str]:
    return re.findall(_NAME, names)


def _mentions(code: str, names: list[str]) -> bool:
    return any(re.search(rf"(?<![\w.]){re.escape(name)}\b(?!\s*=(?!=))", code) for name in names)


def _in_turn(lines: list[str], file: str, line: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """First and last line of each statement that a turn of the loop runs after this one."""
    head = loop_line(file, line)
    first = head - 1 if head else start
    column = indent(lines[first])
    stop = end
    while stop + 1 < len(lines) and stop < first + _FAR:
        code = lines[stop + 1].strip()
        found = indent(lines[stop + 1])
        if code and not code.startswith("#") and (found <= column if head else found < column):
            break
        stop += 1
    yield from _statements(lines, end + 1, stop)
    if head:
        yield from _statements(lines, first, start - 1)


def _statements(lines: list[str], first: int, last: int) -> Iterator[tuple[int, int]]:
    at = first
    while at <= last:
        code = lines[at].strip()
        if not code or code.startswith(("#", "@", *FUNCTIONS)):
            at += 1
            continue
        end = _end(lines, at, last + 1)
        yield at, end
        at = end + 1


def _statement_at(file: str, line: int) -> tuple[list[str], int, int] | None:
    """The lines of a file, and the first and last one of the statement that ``line`` is a part of, both from 0; None:
    there is no such line."""
    lines = linecache.getlines(file)
    return (lines, *_statement(lines, line - 1)) if 0 < line <= len(lines) else None


def _statement(lines: list[str], at: int) -> tuple[int, int]:
    for start in range(at, max(0, at - _WIDE) - 1, -1):
        open_before = start > 0 and lines[start - 1].rstrip().endswith(("(", "[", "{", ",", "\\"))
        if not open_before and _depth(lines[start : at + 1])[0] >= 0:
            return start, max(at, _end(lines, start, len(lines)))
    return at, at


def _end(lines: list[str], start: int, stop: int) -> int:
    """The last line of the statement that begins at ``start``."""
    depth = 0
    for end in range(start, min(stop, start + _WIDE)):
        depth += _depth(lines[end : end + 1])[1]
        if depth <= 0 and not lines[end].rstrip().endswith("\\"):
            return end
    return start


def _depth(lines: list[str]) -> tuple[int, int]:
    """Brackets that the lines open and do not close: the fewest on the way, and at their end."""
    depth = least = 0
    for text in lines:
        for sign in _BRACKETS.findall(text):
            depth += (sign in _OPEN) - (sign in _CLOSE)
            least = min(least, depth)
    return least, depth


def _joined(lines: list[str], start: int, end: int) -> str:
    parts = (without_comment(one).strip().removesuffix("\\") for one in lines[start : end + 1])
    return " ".join(one for one in parts if one)


def _told(lines: list[str], file: str, first: int, last: int, code: str) -> str:
    """A statement; of a test with what leaves the loop, where its block ends in that."""
    if not code.startswith(_TESTS) or not code.endswith(":") or not loop_line(file, first + 1):
        return code
    column, inner, leaves = indent(lines[first]), -1, ""
    for text in lines[last + 1 : last + 1 + _WIDE]:
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        found = indent(text)
        inner = found if inner < 0 else inner
        if found <= column:
            break
        if found == inner:
            match = _LEAVES.match(text.strip())
            leaves = match[1] if match else ""
    return f"{code} {leaves}".rstrip()
