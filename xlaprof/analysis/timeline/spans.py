"""Stretches of time to be drawn: each by itself in a short recording, and in a long one as fine as memory allows.

A drawing of a long run shows no stretch that is shorter than a dot. So when there are too many, the short ones become
sums in cells of equal length (the *grain*), and the long ones stay as they are. The grain doubles until both are few:
whenever :meth:`Spans.relieve` is called, so that it does not depend on the order of what was added meanwhile.

Of a recording that is there already, of which a tenth was read, they may be a tenth as many: what would become sums
in the end is not drawn by itself before.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Generic, Self, TypeVar

import msgspec

from xlaprof.analysis.sums import twin

MOST = 400_000  # weight of the stretches and cells kept, of all rows
_COARSEST = 1 << 62  # ns: a machine word holds it
_WHOLE = 2  # weight of a stretch; a cell with one kind weighs 1
_LEAST = 1 / 64  # share of a recording from which on one can tell how many there will be

K = TypeVar("K", bound=Hashable)  # what cells tell apart
R = TypeVar("R", bound=Hashable)  # keys of rows


class Stretch(msgspec.Struct, Generic[K], frozen=True, gc=False):
    """Something that lasted over ``[start, end)``, ns.

    There are hundreds of thousands of them, and none is part of a cycle: searches for garbage need not look at them.
    """

    start: int
    end: int
    kind: K
    detail: Any  # known of stretches alone


class Row(Generic[K]):
    """The stretches of one row, in the order in which they came, and its cells by number."""

    def __init__(self) -> None:
        self.whole: list[Stretch[K]] = []
        self.cells: dict[K, dict[int, tuple[int, int]]] = {}  # of each kind: number of a cell -> ns, stretches

    def copy(self) -> Row[K]:
        made: Row[K] = Row()
        made.whole = self.whole.copy()
        made.cells = {kind: cells.copy() for kind, cells in self.cells.items()}
        return made

    @property
    def weight(self) -> int:
        return _WHOLE * len(self.whole) + sum(map(len, self.cells.values()))

    def within(self, start: int, end: int) -> list[Stretch[K]]:
        """The stretches that lie in ``[start, end)``, if only in part."""
        return [one for one in self.whole if one.end > start and one.start < end]

    def near(self, grain: int, start: int, end: int) -> Iterator[tuple[K, Iterable[tuple[int, tuple[int, int]]]]]:
        """Of each kind the cells of ``grain`` of which some lie in ``[start, end)``: number, ns and stretches.

        A row may have tens of thousands, and a step a few of them: those are looked up.
        """
        here = range(start // grain, -(-end // grain)) if self.cells else ()
        for kind, cells in self.cells.items():
            few = len(here) < len(cells)
            yield kind, [(number, cells[number]) for number in here if number in cells] if few else cells.items()

    def by_cell(self) -> dict[int, list[tuple[K, int, int]]]:
        """Kind, ns and stretches of all that is in each cell."""
        found: dict[int, list[tuple[K, int, int]]] = {}
        for kind, cells in self.cells.items():
            for number, sums in cells.items():
                found.setdefault(number, []).append((kind, *sums))
        return found

    def put(self, kind: K, sums: Iterable[tuple[int, int, int]]) -> int:
        """Add to cells: the number of one, ns, stretches; returns how many are new."""
        cells = self.cells.setdefault(kind, {})
        before = len(cells)
        for number, ns, count in sums:
            held = cells.get(number)
            cells[number] = (held[0] + ns, held[1] + count) if held is not None else (ns, count)
        return len(cells) - before

    def coarsen(self, before: int, grain: int) -> None:
        """Have cells of ``grain``, where they were of ``before``, and what is shorter in them."""
        cells, self.cells = self.cells, {}
        for kind, sums in cells.items():
            self.put(kind, [(number * before // grain, ns, count) for number, (ns, count) in sums.items()])
        short: dict[K, list[tuple[int, int, int]]] = {}
        for one in self.whole:
            if one.end - one.start < grain:
                short.setdefault(one.kind, []).append((one.start // grain, one.end - one.start, 1))
        self.whole = [one for one in self.whole if one.end - one.start >= grain]
        for kind, found in short.items():
            self.put(kind, found)


class Spans(Generic[R, K]):
    """Rows of stretches, by any key. ``grain``: ns of a cell; 0: there are no cells, every stretch is known."""

    def __init__(self, most: int = 0) -> None:
        self.rows: dict[R, Row[K]] = {}
        self.grain = 0
        self.share = 1.0  # of the recording, that was read
        self._most = most or MOST
        self._held = 0

    def copy(self) -> Self:
        """A twin that can be added to."""
        return twin(self)

    def add(self, key: R, start: int, end: int, kind: K, detail: Any = None) -> None:
        """Note that ``kind`` lasted over ``[start, end)``."""
        if end - start < self.grain:
            self._held += self._row(key).put(kind, ((start // self.grain, end - start, 1),))
        else:
            self._row(key).whole.append(Stretch(start, end, kind, detail))
            self._held += _WHOLE

    def add_sums(self, key: R, kind: K, sums: Iterable[tuple[int, int, int]]) -> None:
        """Add what is shorter than the grain: the number of its cell, ns, how many stretches."""
        self._held += self._row(key).put(kind, sums)

    def relieve(self) -> None:
        """Where there are too many, have at most half as many, of a coarser grain."""
        most = int(self._most * min(max(self.share, _LEAST), 1.0))
        if self._held <= most:
            return
        rows = self.rows.values()
        while self._held > most // 2 and self.grain < _COARSEST:
            before, self.grain = self.grain, 2 * self.grain
            if not before:
                lengths = sorted(one.end - one.start for row in rows for one in row.whole)
                # half of them are shorter
                self.grain = min(1 << lengths[len(lengths) // 2].bit_length(), _COARSEST)
            for row in rows:
                row.coarsen(before, self.grain)
            self._held = sum(row.weight for row in rows)

    def _row(self, key: R) -> Row[K]:
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = Row()
        return row
