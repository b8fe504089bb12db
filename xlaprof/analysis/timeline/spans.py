"""Stretches of time to be drawn: each by itself in a short recording, and in a long one as fine as memory allows.

A drawing of a long run shows no stretch that is shorter than a dot. So when there are too many, the short ones become
sums in cells of equal length (the *grain*), and the long ones stay as they are. The grain doubles until both are few.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Generic, NamedTuple, Self, TypeVar

from xlaprof.analysis.sums import twin

MOST = 200_000  # stretches and cells kept, of all rows

K = TypeVar("K", bound=Hashable)  # what cells tell apart
R = TypeVar("R", bound=Hashable)  # keys of rows


class Stretch(NamedTuple, Generic[K]):
    """Something that lasted over ``[start, end)``, ns."""

    start: int
    end: int
    kind: K
    detail: Any  # known of stretches alone


class Row(Generic[K]):
    """The stretches of one row, in the order in which they came, and its cells by number."""

    def __init__(self) -> None:
        self.whole: list[Stretch[K]] = []
        self.cells: dict[int, dict[K, list[int]]] = {}  # kind -> [ns, stretches]

    def copy(self) -> Self:
        return twin(self)

    def __len__(self) -> int:
        return len(self.whole) + len(self.cells)

    def within(self, start: int, end: int) -> list[Stretch[K]]:
        """The stretches that lie in ``[start, end)``, if only in part."""
        return [one for one in self.whole if one.end > start and one.start < end]

    def put(self, cell: int, kind: K, ns: int, count: int) -> bool:
        """Add to a cell; whether it is a new one."""
        held = self.cells.get(cell)
        if new := held is None:
            held = self.cells[cell] = {}
        sums = held.get(kind)
        if sums is None:
            held[kind] = [ns, count]
        else:
            sums[0] += ns
            sums[1] += count
        return new


class Spans(Generic[R, K]):
    """Rows of stretches, by any key. ``grain``: ns of a cell; 0: there are no cells, every stretch is known."""

    def __init__(self, most: int = 0) -> None:
        self.rows: dict[R, Row[K]] = {}
        self.grain = 0
        self._most = most or MOST
        self._held = 0

    def copy(self) -> Self:
        """A twin that can be added to."""
        return twin(self)

    def add(self, key: R, start: int, end: int, kind: K, detail: Any = None) -> None:
        """Note that ``kind`` lasted over ``[start, end)``."""
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = Row()
        if end - start < self.grain:
            self._held += row.put(start // self.grain, kind, end - start, 1)
        else:
            row.whole.append(Stretch(start, end, kind, detail))
            self._held += 1
        if self._held > self._most:
            self._coarsen()

    def _coarsen(self) -> None:
        """Have at most half as many, of a coarser grain."""
        lengths = sorted(one.end - one.start for row in self.rows.values() for one in row.whole)
        if not self.grain and lengths:
            self.grain = 1 << lengths[len(lengths) // 2].bit_length()  # half of them are shorter
            self._regrain(1)
        while self._held > self._most // 2 and self.grain < 1 << 62:
            self.grain = max(1, 2 * self.grain)
            self._regrain(2)

    def _regrain(self, times: int) -> None:
        self._held = 0
        for row in self.rows.values():
            cells, row.cells = row.cells, {}
            for number, cell in cells.items():
                for kind, (ns, count) in cell.items():
                    row.put(number // times, kind, ns, count)
            short = [one for one in row.whole if one.end - one.start < self.grain]
            row.whole = [one for one in row.whole if one.end - one.start >= self.grain]
            for one in short:
                row.put(one.start // self.grain, one.kind, one.end - one.start, 1)
            self._held += len(row)
