"""Which line of a loop of the program's made most of a program that is compiled as a whole.

A Python loop within a jitted or compiled function is traced turn by turn: the program has each turn's operations. One
that a line made many times was made in a loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from xlaprof.recording.stacks import RawFrame
from xlaprof.source_text.lines import loop_lines

_SEVERAL = 8  # times that a line makes an operation in one turn, at most
_KEPT = 8  # frames of the line

_Line = TypeVar("_Line", bound="tuple[Any, ...]")  # of the program's text, its code or file first


class Unrolled(NamedTuple):
    """A program before it is lowered."""

    ops: int
    turns: int = 0  # times that one line made the same operation
    frames: tuple[RawFrame, ...] = ()  # that line; the heads of all loops around it but the innermost; its caller ...
    within: int = 0  # operations of lines that did so about as often


def most_repeated(ops: Iterable[tuple[str, tuple[_Line, ...]]], frame: Callable[[_Line], RawFrame]) -> Unrolled:
    """Of operations, each with its name and the lines of the program that made it, innermost first.

    A function that is called at several lines makes other operations at each.
    """
    made: Counter[tuple[str, tuple[_Line, ...]]] = Counter()
    count = 0
    for name, stack in ops:
        count += 1
        if stack:
            made[name, stack[:_KEPT]] += 1
    if not made:
        return Unrolled(count)
    most = max(made.values())
    # a line may make an operation several times in a turn: the turns are as many as most operations come
    made_by: Counter[int] = Counter()
    for times in made.values():
        made_by[times] += times * (times * _SEVERAL >= most)
    turns = made_by.most_common(1)[0][0]
    path = next(way for (_, way), times in made.items() if times == turns)
    within = sum(times for times in made.values() if times * 2 >= turns)
    return Unrolled(count, turns, tuple(each for one in path for each in _with_loops(frame(one))), within)


def _with_loops(one: RawFrame) -> Iterator[RawFrame]:
    """A frame tells the innermost loop around its line: each further one in its function is a frame by itself."""
    yield one
    for head in islice(loop_lines(one.file, one.line), 1, None):
        yield one._replace(line=head)
