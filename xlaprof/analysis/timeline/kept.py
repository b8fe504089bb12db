"""What a window settles, kept over the whole run for those who draw it: steps with their parts, gaps with their blame.

In bounded memory: neighbouring steps become one row when there are too many, short gaps become sums.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Self

import msgspec

from xlaprof.analysis.sums import copied

from .idle import LONGEST, Cause, IdleBlame, LongGap
from .spans import Spans
from .window import CAUSES, Split, Window

if TYPE_CHECKING:
    from .columns.intervals import Column

ROWS = 4_096  # of the steps of one name
NAMES = 8  # of steps: further ones are not kept
GAPS = 120_000  # weight of those kept (:mod:`~xlaprof.analysis.timeline.spans`)


class StepRow(msgspec.Struct, gc=False):
    """Some steps that follow each other; most often one. Nanoseconds."""

    start: int
    first: int  # number of the first step, and
    last: int  # of the last
    steps: int = 0
    total: int = 0
    most: int = 0  # the longest
    busy: int = 0  # summed over the devices
    parts: list[int] = msgspec.field(default_factory=lambda: [0] * CAUSES)
    latest: int = 0  # when the last step began

    def add(self, other: StepRow) -> None:
        """Add steps that came later, or earlier."""
        if other.start < self.start:
            self.start, self.first = other.start, other.first
        if other.latest >= self.latest:
            self.latest, self.last = other.latest, other.last
        self.steps += other.steps
        self.total += other.total
        self.most = max(self.most, other.most)
        self.busy += other.busy
        self.parts = [a + b for a, b in zip(self.parts, other.parts, strict=True)]


class StepRows:
    """The steps of one name but the first, as rows of as many steps each as make at most :data:`ROWS`.

    A copy shares its rows: a row that was copied does not change any more, and who adds to it has one of its own.
    """

    def __init__(self) -> None:
        self.first: StepRow | None = None  # it compiles
        self._rows: dict[int, StepRow] = {}  # by ordinal >> shift
        self._own: set[int] = set()  # numbers of those that no copy shares
        self._shift = 0

    def copy(self) -> Self:
        self._own.clear()
        other = type(self)()
        vars(other).update(vars(self), _rows=self._rows.copy(), _own=set())
        return other

    def add(self, ordinal: int, row: StepRow) -> None:
        """Add a step: the one with this ordinal among all steps of the run."""
        if self.first is None or row.start < self.first.start:
            self.first, later = row, self.first
            if later is None:
                return
            row = later
        self._put(ordinal >> self._shift, row)
        self._bound()

    def add_all(self, steps: Column, busy: Column, parts: Column) -> None:
        """Add many steps, as :meth:`Window.passed_at_once` has them."""
        from .columns.intervals import MOST
        from .columns.kept import summed

        start, end, _, ordinals, _ = steps
        if self.first is None or start.min() < self.first.start or (end - start).max() >= MOST:
            for ordinal, fields in summed(steps, busy, parts, ordinals):
                self.add(ordinal, StepRow(*fields))
            return
        for number, fields in summed(steps, busy, parts, ordinals >> self._shift):
            self._put(number, StepRow(*fields), mine=True)
        self._bound()

    def _bound(self) -> None:
        while len(self._rows) > ROWS:
            self._shift += 1
            held, own, self._rows, self._own = self._rows, self._own, {}, set()
            for number, one in held.items():
                self._put(number >> 1, one, mine=number in own)

    def _put(self, number: int, row: StepRow, mine: bool = False) -> None:
        """``mine``: nobody else has the row."""
        here = self._rows.get(number)
        if here is None:
            self._rows[number] = row
            if mine:
                self._own.add(number)
            return
        if number not in self._own:
            here = self._rows[number] = copied(here)
            self._own.add(number)
        here.add(row)

    def __iter__(self) -> Iterator[StepRow]:
        """In order of time, without the first step."""
        return iter(sorted(self._rows.values(), key=lambda row: row.start))


class EveryGap(IdleBlame):
    """Keeps every gap with its blame, if only in a sum, beside the longest ones.

    ``spans`` has one row; details are :class:`LongGap`.
    """

    sums: ClassVar[bool] = True

    spans: Spans[int, Cause] = msgspec.field(default_factory=lambda: Spans(GAPS))

    @property
    def shortest(self) -> int:
        return min(super().shortest, self.spans.grain - 1)

    def sum_up(self, begin: int, ns: int, parts: dict[Cause, int]) -> None:
        self.spans.add(0, begin, begin + ns, max(parts, key=parts.__getitem__))

    def sum_up_many(self, begins: Column, lengths: Column, causes: Sequence[Cause], main: Column) -> None:
        from .columns.intervals import grouped, in_cells

        for code, those in grouped(main):
            self.spans.add_sums(0, causes[code], in_cells(begins[those], lengths[those], self.spans.grain))

    def _keep(self, gap: LongGap) -> None:
        self.spans.add(0, gap.start, gap.start + gap.dur, gap.parts[0][0], gap)
        if len(self.longest) < LONGEST:
            heapq.heappush(self.longest, (gap.dur, self.serial, gap))
        elif gap.dur > self.longest[0][0]:
            heapq.heapreplace(self.longest, (gap.dur, self.serial, gap))
        self.serial += 1


class KeptWindow(Window):
    """A window that keeps what it settles."""

    def __init__(self) -> None:
        super().__init__()
        self.idle: EveryGap = EveryGap()
        self.steps: dict[int, StepRows] = {}  # by name

    def passed(self, name: int, num: int, ordinal: int, start: int, split: Split) -> None:
        if (rows := self._rows_of(name)) is not None:
            parts = split.parts.copy()
            rows.add(ordinal, StepRow(start, num, num, 1, split.total, split.total, split.busy, parts, start))

    def passed_at_once(self, steps: Column, busy: Column, parts: Column) -> None:
        from .columns.intervals import grouped

        for name, those in grouped(steps[4]):
            if (rows := self._rows_of(name)) is not None:
                rows.add_all(steps[:, those], busy[those], parts[those])

    def _rows_of(self, name: int) -> StepRows | None:
        rows = self.steps.get(name)
        if rows is None and len(self.steps) < NAMES:
            rows = self.steps[name] = StepRows()
        return rows

    def plan_next_settle(self) -> None:
        super().plan_next_settle()
        self.idle.spans.relieve()
