"""What lines of a log look like that differ in numbers alone: learnt from one of them, by asking the decoder.

The lines that our recorder writes have some twenty shapes, for it leaves out what has its default. Where only digits
that make whole numbers differ, and none has more digits than its place allows, a line is a valid event as well, and
which number is which field is known without decoding it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from xlaprof.events import AnyEvent

Decode = Callable[[bytes], AnyEvent]

RUN = re.compile(rb"\d+")
_MOST_RUNS = 512
_DIGITS = (18, 9)  # that a number may have: fewer than its bound, of times or of ids
LENGTH = 3  # of the lists in tables
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)


class TableShape(NamedTuple):
    """A table of the event, whose values are lists of :data:`LENGTH` numbers."""

    keys: tuple[str, ...]
    runs: list[int]  # all numbers, key by key


class Shape(NamedTuple):
    """What lines have in common. Runs of digits are named by their number in the line."""

    event: AnyEvent  # one of them: others have the same texts
    most: tuple[int, ...]  # digits that each run may have
    fixed: tuple[int, ...]  # runs that are no number but part of a text, or of a number's sign, fraction or exponent
    fields: Mapping[str, int]  # field -> its run
    constants: Mapping[str, int]  # field -> its number, the same in all lines
    tables: Mapping[str, TableShape]


def learn(line: bytes, decode: Decode) -> Shape | None:
    """The shape of a line; None: it is no event, or of a kind whose numbers cannot be told from one line."""
    runs = [run.span() for run in RUN.finditer(line)]
    if not 0 < len(runs) <= _MOST_RUNS:
        return None

    def event(digits: Mapping[int, int | str]) -> AnyEvent | None:
        """The event if these runs had other digits."""
        parts, done = [], 0
        for run, (start, end) in enumerate(runs):
            parts += [line[done:start], str(digits[run]).encode() if run in digits else line[start:end]]
            done = end
        try:
            return decode(b"".join((*parts, line[done:])))
        except _UNREADABLE:
            return None

    own = event({})
    if own is None:
        return None
    free = [
        run
        for run, (start, end) in enumerate(runs)
        if line[start - 1 : start] in b":[," and line[end : end + 1] in b",]}" and event({run: "01"}) is None
    ]
    most = [_DIGITS[0]] * len(runs)
    large: dict[int, int | str] = dict.fromkeys(free, 0)
    if event(large) is None:
        return None
    for run in reversed(free):  # what may not descend grows from its end
        most[run] = next((n for n in _DIGITS if event({**large, run: "9" * n}) is not None), 0)
        if not most[run]:
            return None
        large[run] = "9" * most[run]
    told = [event({run: base + run for run in free}) for base in (1_000, 5_000)]
    if told[0] is None or told[1] is None:
        return None
    fixed = tuple(run for run in range(len(runs)) if run not in free)
    shape = Shape(own, tuple(most), fixed, fields := {}, constants := {}, tables := {})
    for name in own.__struct_fields__:
        one, two = (getattr(each, name) for each in told)
        if isinstance(one, int):
            if one - 1_000 == two - 5_000 in free:
                fields[name] = one - 1_000
            elif one == two:
                constants[name] = int(one)
            else:
                return None
        elif isinstance(one, dict) and one and all(isinstance(numbers, list) for numbers in one.values()):
            tables[name] = TableShape(tuple(one), [number - 1_000 for numbers in one.values() for number in numbers])
            if not set(tables[name].runs) <= set(free) or len(tables[name].runs) != len(one) * LENGTH:
                return None
    return shape if fields.keys() >= set(own.ascending) else None
