"""How large a program is, and which line of a loop of the program's made most of it.

A Python loop within a jitted function is traced turn by turn: the program has each turn's operations. JAX keeps the
stack of each operation; one that a line of the program made many times was made in a loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from types import CodeType
from typing import Any, NamedTuple

from xlaprof.recording.stacks import RawFrame, is_library

LARGE = 1_000  # operations: of smaller programs only their number is told
_MOST = 50_000  # operations looked at
_SEVERAL = 8  # times that a line makes an operation in one turn, at most
_KEPT = 8  # frames of the line

_Line = tuple[CodeType, int]  # and the instruction


class Unrolled(NamedTuple):
    """A program before it is lowered."""

    ops: int
    turns: int = 0  # times that one line made the same operation
    frames: tuple[RawFrame, ...] = ()  # that line
    within: int = 0  # operations of lines that did so about as often


def unrolled(jaxpr: Any) -> Unrolled:
    """Look at a jaxpr, those within it (of a scan, of an inner jit) once each."""
    ops = list(_operations(jaxpr))
    if len(ops) < LARGE:
        return Unrolled(len(ops))
    users: dict[CodeType, bool] = {}
    made: Counter[tuple[str, _Line]] = Counter()
    stacks: dict[_Line, tuple[_Line, ...]] = {}
    for name, traceback in ops:
        stack = tuple(_users(traceback, users))
        if stack:
            made[name, stack[0]] += 1
            stacks.setdefault(stack[0], stack)
    if not made:
        return Unrolled(len(ops))
    (_, line), most = made.most_common(1)[0]
    # a backward pass makes some operations of a line several times: the turns are as many as the rarest ones
    place = _frame(line)
    here = (times for (_, where), times in made.items() if where[0] is line[0] and _frame(where) == place)
    turns = min(times for times in here if times * _SEVERAL >= most)
    within = sum(times for times in made.values() if times * 2 >= turns)
    return Unrolled(len(ops), turns, tuple(_frame(one) for one in stacks[line][:_KEPT]), within)


def _operations(jaxpr: Any, left: int = _MOST) -> Iterator[tuple[str, Any]]:
    """Name and traceback of each operation."""
    waiting, seen = [getattr(jaxpr, "jaxpr", jaxpr)], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        for eqn in one.eqns:
            left -= 1
            if left < 0:
                return
            yield eqn.primitive.name, eqn.source_info.traceback
            for value in eqn.params.values():
                for part in value if isinstance(value, tuple | list) else (value,):
                    inner = getattr(part, "jaxpr", part)
                    if hasattr(inner, "eqns"):
                        waiting.append(inner)


def lines(traceback: Any) -> tuple[RawFrame, ...]:
    """The lines of the program on a traceback of JAX's, innermost first."""
    return tuple(_frame(line) for line in islice(_users(traceback, {}), _KEPT))


def _users(traceback: Any, users: dict[CodeType, bool]) -> Iterator[_Line]:
    if traceback is None:
        return
    for code, at in zip(*traceback.raw_frames(), strict=True):
        own = users.get(code)
        if own is None:
            own = users[code] = not is_library(code.co_filename, None)
        if own:
            yield code, at


def _frame(line: _Line) -> RawFrame:
    code, at = line
    for begin, end, number in code.co_lines():
        if begin <= at < end and number is not None:
            return RawFrame(code.co_filename, number, code.co_qualname)
    return RawFrame(code.co_filename, code.co_firstlineno, code.co_qualname)
