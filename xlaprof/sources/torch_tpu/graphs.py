"""A batch's graph as TorchTPU writes it: an operation in a line, many with the user's line behind it.

What the operations look like is TorchTPU's own; here only lines are compared, and a comment is read:
``    # train.py:12 in step``.
"""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

from xlaprof.recording.stacks import RawFrame

_COUNT = re.compile(r"# Graph: (\d{1,9}) ops\b")
_PLACE = re.compile(r"(.+):(\d{1,9}) in (.*)")
_NUMBERS = re.compile(r"\d+")
_LINES, _LONGEST = 1_000, 300  # lines of a graph that are looked at, and characters of one
_KNOWN = 32  # graphs that a new one is compared with
_PARSED = 64  # graphs that are not parsed again: nearly every batch has one that came before
_SIMILAR = 0.5  # of the lines at least are the same but for numbers


class Graph(NamedTuple):
    """The lines of a graph, without the user's, which are beside them."""

    lines: tuple[str, ...]
    places: tuple[RawFrame | None, ...]
    ops: int  # 0: not known

    @property
    def last(self) -> RawFrame | None:
        """The user's line of the last operation that has one."""
        return next(filter(None, reversed(self.places)), None)


class Difference(NamedTuple):
    """Where a graph first differs from another."""

    old: str
    new: str
    place: RawFrame | None  # of the new one


def parsed(text: str) -> Graph:
    """The graph of a text, at most its first lines."""
    count = _COUNT.search(text[:_LONGEST])
    lines, places = [], []
    for whole in text.split("\n", _LINES)[:_LINES]:
        op, _, place = whole[: 4 * _LONGEST].rpartition("    # ")
        found = _PLACE.fullmatch(place)
        op = (op if found else whole).strip()
        if op and not op.startswith("#"):
            lines.append(op[:_LONGEST])
            places.append(RawFrame(found[1], int(found[2]), found[3].strip()) if found else None)
    return Graph(tuple(lines), tuple(places), int(count[1]) if count else 0)


class Known:
    """The graphs that came last, each once."""

    def __init__(self) -> None:
        self._graphs: deque[tuple[tuple[str, ...], tuple[str, ...]]] = deque(maxlen=_KNOWN)
        self._parsed: dict[int, Graph] = {}  # by the hash of the text

    def parsed(self, text: str) -> Graph:
        """The graph of a text."""
        key = hash(text)
        graph = self._parsed.get(key)
        if graph is None:
            if len(self._parsed) >= _PARSED:
                self._parsed.clear()
            graph = self._parsed[key] = parsed(text)
        return graph

    def add(self, graph: Graph) -> None:
        """Remember a graph."""
        if graph.lines and all(graph.lines != lines for lines, _ in self._graphs):
            self._graphs.append((graph.lines, _without_numbers(graph.lines)))

    def difference(self, graph: Graph) -> Difference | None:
        """Where it first differs from the graph most like it, the latest of several; None where none is like it."""
        mine = _without_numbers(graph.lines)
        best: tuple[int, int] | None = None
        like: tuple[str, ...] = ()
        for lines, without in reversed(self._graphs):
            if len(lines) == len(mine) and lines != graph.lines:
                score = sum(map(str.__eq__, without, mine)), sum(map(str.__eq__, lines, graph.lines))
                if score[0] >= _SIMILAR * len(mine) and (best is None or score > best):
                    best, like = score, lines
        for old, new, place in zip(like, graph.lines, graph.places, strict=False):
            if old != new:
                return Difference(old, new, place)
        return None


def _without_numbers(lines: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_NUMBERS.sub("#", line) for line in lines)
