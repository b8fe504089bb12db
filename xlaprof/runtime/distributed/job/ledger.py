"""Which programs the ranks run, in which order; the coordinator keeps it and reports when they differ.

Ranks that share collectives have to run the same programs in the same order. Where they do not, the exchange hangs,
ends the process or gives wrong numbers. So a rank reports to the coordinator when it switches to another program (a
repeated step costs nothing), and once a second how far it is.

The coordinator imports this module, so it uses the standard library alone.
"""

from __future__ import annotations

import json
import zlib
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import NamedTuple

#: switches to another program, remembered per rank
TURNS = 64
#: outlines kept
OUTLINES = 4096


class Line(NamedTuple):
    """One operation: what has to be equal on all ranks, and where it was recorded."""

    text: str
    place: str


class Outline(NamedTuple):
    """The part of a graph that has to be the same on all ranks."""

    digest: str
    lines: tuple[Line, ...]
    collective: str  # the first one, and its line

    def pack(self) -> bytes:
        """As bytes, for other processes."""
        return zlib.compress(json.dumps([self.digest, self.lines, self.collective]).encode(), 1)


def unpack(data: bytes) -> Outline:
    """The inverse of :meth:`Outline.pack`."""
    digest, lines, collective = json.loads(zlib.decompress(data))
    return Outline(digest, tuple(Line(*line) for line in lines), collective)


def difference(one: Outline, other: Outline, a: int, b: int) -> str:
    """One sentence: the first difference between the graphs of ranks ``a`` and ``b``, with the line of each."""
    lines, others = one.lines, other.lines
    at = next(
        (i for i, (x, y) in enumerate(zip(lines, others, strict=False)) if x.text != y.text),
        min(len(lines), len(others)),
    )

    def side(theirs: tuple[Line, ...]) -> str:
        if at < len(theirs):
            return theirs[at].text + (f" at {theirs[at].place}" if theirs[at].place else "")
        return "nothing more" + (f" after {theirs[-1].place}" if theirs and theirs[-1].place else "")

    return (
        f"ranks {a} and {b} recorded different graphs, from operation {at + 1} on: rank {a} has {side(lines)}; "
        f"rank {b} has {side(others)}. Before and after a collective ({one.collective or other.collective}) all ranks "
        "have to record the same operations over the same shapes; only numbers may differ"
    )


class History:
    """The programs that one rank has reported."""

    def __init__(self) -> None:
        self.turns: deque[tuple[int, str]] = deque(maxlen=TURNS)  # (execution, program from there on)
        self.until = 0  # the last execution known

    def runs(self) -> Iterator[tuple[int, int, str]]:
        """``(first, last, program)`` of executions in a row."""
        turns = list(self.turns)
        ends = [start - 1 for start, _ in turns[1:]] + [self.until]
        for (start, program), end in zip(turns, ends, strict=True):
            yield start, end, program


class Ledger:
    """The programs that all ranks have reported, and the first difference between two of them."""

    def __init__(self) -> None:
        self._outlines: OrderedDict[str, bytes] = OrderedDict()
        self._histories: dict[tuple[int, ...], dict[int, History]] = {}

    def outline(self, digest: str, packed: bytes) -> None:
        """Keep what a program looks like."""
        self._outlines.setdefault(digest, packed)
        if len(self._outlines) > OUTLINES:
            self._outlines.popitem(last=False)

    def report(self, rank: int, ranks: tuple[int, ...], at: int, digest: str) -> str:
        """Record that ``rank`` runs ``digest`` as execution number ``at`` of those with collectives among ``ranks``.

        Returns a sentence if another rank runs another program there, else an empty string.
        """
        members = self._histories.setdefault(ranks, {})
        history = members.setdefault(rank, History())
        if at < history.until or not digest:  # an older report
            return ""
        turns = history.turns
        if turns and turns[-1][0] == at:  # another program than the planned one
            turns.pop()
        if not turns or turns[-1][1] != digest:
            turns.append((at, digest))
        history.until = at
        for other in sorted(members):
            if other != rank and (why := self._compare(rank, history, other, members[other])):
                return why
        return ""

    def _compare(self, a: int, one: History, b: int, other: History) -> str:
        if a > b:
            a, one, b, other = b, other, a, one
        for start, end, program in one.runs():
            for first, last, theirs in other.runs():
                if program != theirs and max(start, first) <= min(end, last):
                    return self._why(a, program, b, theirs, max(start, first))
        return ""

    def _why(self, a: int, program: str, b: int, theirs: str, at: int) -> str:
        one, other = (unpack(self._outlines[d]) if d in self._outlines else None for d in (program, theirs))
        if one is None or other is None:
            return f"ranks {a} and {b} run different programs, from execution {at} of those with collectives on"
        return difference(one, other, a, b) + f" (execution {at} of those with collectives)"
