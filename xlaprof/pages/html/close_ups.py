"""Close-ups of a long run: where it begins, and where findings happened, every stretch is drawn, however short."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

from xlaprof.analysis.occurrences import Occurrences
from xlaprof.analysis.run import Run
from xlaprof.analysis.timeline.idle import Cause
from xlaprof.analysis.timeline.kept import EveryGap
from xlaprof.analysis.timeline.spans import Row, Spans, Stretch
from xlaprof.analysis.views.lanes import Lanes
from xlaprof.columns import present
from xlaprof.events import AnyEvent, Execute, Header

if TYPE_CHECKING:
    from xlaprof.analysis.timeline.columns.intervals import Column, Flags
    from xlaprof.columns.kinds import Columns

SHOWN = 200  # occurrences of a finding that the page shows one by one
_BEFORE, _AFTER = 8, 24  # cells that are drawn in full before a moment, and after it
_MOST = 8_000  # stretches in one close-up: a denser one stays as it was


class CloseUp(NamedTuple):
    """A part of the run: moments in ns, multiples of the grain."""

    start: int
    end: int
    why: str  # "the beginning", "finding 2"


def choose(begin: int, grain: int, happened: Sequence[Occurrences]) -> list[CloseUp]:
    """The parts to look at closely: the beginning, and of each finding its first occurrence and one in the middle."""
    wanted = [(begin, "the beginning")]
    for number, one in enumerate(happened, 1):
        for which in {0, min(len(one.first), SHOWN) // 2} if one.first else ():
            wanted.append((begin + round(one.first[which].at_s * 1e9), f"finding {number}"))
    found: list[CloseUp] = []
    for moment, why in sorted(wanted):
        cell = moment // grain
        start, end = (cell - _BEFORE) * grain, (cell + _AFTER) * grain
        if found and start <= found[-1].end:
            before = found[-1]
            both = before.why if why in before.why.split(", ") else f"{before.why}, {why}"
            found[-1] = CloseUp(before.start, max(end, before.end), both)
        else:
            found.append(CloseUp(start, end, why))
    return found


class _Close(Spans[Any, Any]):
    """Takes what begins in a close-up and is shorter than the grain."""

    def __init__(self, parts: Sequence[CloseUp], grain: int) -> None:
        super().__init__()
        self.part_of = {cell: n for n, one in enumerate(parts) for cell in range(one.start // grain, one.end // grain)}
        self.shorter = grain
        self.counts = [0] * len(parts)
        self.parts = parts

    def add(self, key: Hashable, start: int, end: int, kind: Hashable, detail: Any = None) -> None:
        part = self.part_of.get(start // self.shorter)
        if part is None or end - start >= self.shorter:
            return
        self.counts[part] += 1
        if self.counts[part] <= _MOST:
            self.rows.setdefault(key, Row()).whole.append(Stretch(start, end, kind, detail))

    def put_into(self, spans: Spans[Any, Any]) -> None:
        """Replace the sums of these parts by what was taken."""
        for key, row in spans.rows.items():
            for cells in row.cells.values():
                for cell in [cell for cell in cells if self._is_whole(cell * spans.grain)]:
                    del cells[cell]
            mine = self.rows.get(key)
            row.whole += [one for one in mine.whole if self._is_whole(one.start)] if mine is not None else ()

    def _is_whole(self, moment: int) -> bool:
        part = self.part_of.get(moment // self.shorter)
        return part is not None and self.counts[part] <= _MOST


class _Gaps(EveryGap):
    """Remembers the gaps that begin in a close-up. The others are drawn already."""

    sums: ClassVar[bool] = False

    spans: _Close = msgspec.field(default_factory=lambda: _Close((), 1))

    def remembers(self, begins: Column, lengths: Column) -> Flags:
        found = lengths < 0
        for part in self.spans.parts:
            found |= (begins >= part.start) & (begins < part.end)
        return found


def draw(
    batches: Iterable[Sequence[AnyEvent]],
    parts: Sequence[CloseUp],
    lanes: Lanes,
    gaps: Spans[int, Cause],
    since_step: int | None,
) -> None:
    """Draw the close-ups into ``lanes`` and ``gaps``, from the same recording read once more."""
    grain = max(lanes.spans.grain, gaps.grain)
    again, run = Lanes(), Run(since_step, long=True)
    close, idle = _Close(parts, lanes.spans.grain or grain), _Close(parts, gaps.grain or grain)
    again.spans = close
    run.window.idle = _Gaps(spans=idle)
    cells = close.part_of.keys()
    for batch in batches:
        for some in ([event] for event in batch) if Header in present(batch) else (batch,):
            run.feed_batch(some)
            for event in _near(some, parts) if run.following is None else ():
                moment = event.start if type(event) is Execute else getattr(event, "t", None)
                if moment is not None and moment // close.shorter in cells:
                    again.feed(event)
    run.window.settle(final=True)
    if lanes.spans.grain:
        close.put_into(lanes.spans)
    if gaps.grain:
        idle.put_into(gaps)


def _near(batch: Sequence[AnyEvent], parts: Sequence[CloseUp]) -> Iterable[AnyEvent]:
    """The events of a batch but for those that certainly begin in no close-up."""
    columns: Columns | None = getattr(batch, "columns", None)  # of lines of a log
    if columns is None:
        return batch
    from xlaprof.columns.kinds import moments

    begin = moments(columns)
    near = begin < 0
    for part in parts:
        near |= (begin >= part.start) & (begin < part.end)
    return map(batch.__getitem__, near.nonzero()[0].tolist())
