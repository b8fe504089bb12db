"""How large a program of JAX's is, and which line of a loop of the program's made most of it.

JAX keeps the stack of each operation; one that a line of the program made many times was made in a loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from types import CodeType
from typing import Any
from zlib import crc32

from xlaprof.recording.stacks import RawFrame, is_library
from xlaprof.sources.unrolled import Unrolled, most_repeated

LARGE = 200  # operations: of smaller programs, which compile in no time, only their number is told
_MOST = 50_000  # operations looked at
_KEPT = 8  # frames of the line

_Line = tuple[CodeType, int]  # and the instruction


def unrolled(jaxpr: Any) -> Unrolled:
    """Look at a jaxpr, those within it (of a scan, of an inner jit) once each."""
    ops = [(eqn.primitive.name, eqn.source_info.traceback) for eqn in _operations(jaxpr)]
    if len(ops) < LARGE:
        return Unrolled(len(ops))
    users: dict[CodeType, bool] = {}
    return most_repeated(((name, tuple(_users(traceback, users))) for name, traceback in ops), _frame)


def content(jaxpr: Any) -> int:
    """A digest of the operations and the shapes of their results: two programs that differ in the numbers alone that
    they are given have the same, and an argument can stand for such a number."""
    digest = 0
    for eqn in _operations(jaxpr):
        shapes = [getattr(one.aval, "shape", ()) for one in eqn.outvars]
        digest = crc32(f"{eqn.primitive.name}{shapes}".encode(), digest)
    return digest


def _operations(jaxpr: Any, left: int = _MOST) -> Iterator[Any]:
    """Each operation (an equation of JAX's)."""
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
            yield eqn
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
