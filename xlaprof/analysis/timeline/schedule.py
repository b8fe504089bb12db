"""What ran when on host and device, kept for replay without a defect (:mod:`~xlaprof.analysis.whatif.replay`).

A recording is settled in batches (``window.Window``): stretches of time with all that host and device did in them. A
short recording keeps all of its batches. A long one keeps every second batch, then every fourth, and so on: an even
sample of bounded size, which always includes the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from xlaprof.analysis.names import Ids

from .host import SCOPE, Segment
from .idle import HoleSpan, SampleSpan

_LIMIT = 40_000  # intervals kept


class Execution(NamedTuple):
    """A program on a device: handed over at ``enqueued``, the device busy with it over ``[start, end)``."""

    enqueued: int
    start: int
    end: int
    device: int
    read: int = 0  # stack of the read that needed it


class Wait(NamedTuple):
    """Over ``[start, end)`` the host read or waited; for ``waited`` ns of it the device had not finished."""

    start: int
    end: int
    waited: int


class Recorded(NamedTuple):
    """``ns`` of ``[start, end)`` were spent recording ``ops`` operations for the barrier that ended at ``done``."""

    start: int
    end: int
    done: int
    ns: int
    ops: int


class Compiled(NamedTuple):
    """A graph of ``ops`` operations was compiled."""

    start: int
    end: int
    ops: int


class StepSpan(NamedTuple):
    """A step, by the host's clock."""

    start: int
    end: int
    name: int
    first: bool  # of its name


class Batch(msgspec.Struct, weakref=True, eq=False):
    """All that happened in ``[start, end)``. ``segments``, ``holes`` and ``samples`` are sorted and disjoint."""

    start: int
    end: int
    segments: Sequence[Segment]
    holes: Sequence[HoleSpan]
    executions: Sequence[Execution]
    waits: Sequence[Wait]
    recordings: Sequence[Recorded]
    compiles: Sequence[Compiled]
    steps: Sequence[StepSpan]
    samples: Sequence[SampleSpan]
    first_run: int  # when the recording's first execution was handed over, or later than all of this

    @property
    def size(self) -> int:
        lists = (self.segments, self.executions, self.waits, self.holes, self.samples)
        return sum(map(len, lists))

    def mapped(self, ids: Ids) -> Batch:
        """The same with the ids of another recording."""
        return replace(
            self,
            segments=[
                (start, end, SCOPE + ids.text(cause - SCOPE) if cause >= SCOPE else cause, ids.stack(place))
                for start, end, cause, place in self.segments
            ],
            holes=[ids.mapped(hole, stacks=("before", "after")) for hole in self.holes],
            samples=[one._replace(seen=ids.mapped(one.seen, stacks=("stack", "at"))) for one in self.samples],
            steps=[ids.mapped(step, texts=("name",)) for step in self.steps],
            executions=[ids.mapped(one, stacks=("read",)) for one in self.executions],
        )


class Schedule(msgspec.Struct):
    """The batches kept of one recording, and those of the recordings merged into it."""

    batches: list[tuple[int, Batch]] = msgspec.field(default_factory=list)  # with their number
    others: list[Schedule] = msgspec.field(default_factory=list)
    seen: int = 0  # batches, kept or not
    span: int = 0  # ns of these batches
    digest_ns: int = 0  # of span: known only as digests
    end: int | None = None  # of the last batch
    stride: int = 1
    first_run: int | None = None
    # Not settled yet, in any order, as bare tuples of the fields of Execution, Wait...: most items of a long recording
    # are never used again.
    executions: list[tuple[int, int, int, int, int]] = msgspec.field(default_factory=list)
    waits: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    recordings: list[tuple[int, int, int, int, int]] = msgspec.field(default_factory=list)
    compiles: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    holes: list[tuple[int, int, int, int]] = msgspec.field(default_factory=list)

    # -- settling

    def settle(
        self,
        horizon: int | None,
        segments: Sequence[Segment],
        steps: Sequence[tuple[int, int, int, int, int, bool, int]],
        samples: Sequence[SampleSpan] = (),
    ) -> None:
        """Everything before ``horizon`` (None: everything) is known.

        ``segments``, ``steps`` (start, end, number, ordinal, name, first, tracing) and ``samples`` are new.
        """
        if horizon is not None and not self.keeps_next:
            self.skip(horizon, bool(segments or steps))
            return
        executions, waits, recordings, compiles, holes = (
            _take(held, horizon, moment) for held, moment in self.pending()
        )
        parts: list[Sequence[tuple[int, ...]]] = [segments, steps, executions, waits, recordings, compiles, holes]
        if not any(parts):
            return
        start = min(one[0] for part in parts for one in part) if self.end is None else self.end
        if horizon is None:
            ends = [one[1] for part in (segments, steps, waits, recordings, holes) for one in part[-1:]]
            horizon = max([start, *ends, *(one[0] for one in executions[-1:])])
        horizon = max(horizon, start)
        self.end = horizon
        if self.first_run is None and executions:
            self.first_run = executions[0][0]
        self.span += horizon - start
        number = self.seen
        self.seen += 1
        if number % self.stride == 0:
            batch = Batch(
                start,
                horizon,
                segments=segments,
                holes=[HoleSpan(*one) for one in holes],
                executions=[Execution(*one) for one in executions],
                waits=[Wait(*one) for one in waits],
                recordings=[Recorded(*one) for one in recordings],
                compiles=[Compiled(*one) for one in compiles],
                steps=[StepSpan(start, end, name, first) for start, end, _, _, name, first, _ in steps],
                samples=samples,
                first_run=horizon if self.first_run is None else self.first_run,
            )
            self.batches.append((number, batch))
            while len(self.batches) > 2 and sum(batch.size for _, batch in self.batches) > _LIMIT:
                self.stride *= 2
                self.batches = [kept for kept in self.batches if kept[0] % self.stride == 0]

    @property
    def keeps_next(self) -> bool:
        """Whether the next batch is kept."""
        return self.end is None or self.first_run is None or not self.seen % self.stride

    def skip(self, horizon: int, anything: bool) -> None:
        """Settle a batch that is not kept, in any order."""
        assert self.end is not None
        for items, moment in self.pending():
            late = [one for one in items if one[moment] > horizon]
            anything = anything or len(late) < len(items)
            items[:] = late
        if anything:
            horizon = max(horizon, self.end)
            self.span += horizon - self.end
            self.end = horizon
            self.seen += 1

    def pending(self) -> list[tuple[list[Any], int]]:
        """Lists of items not settled yet, and the position in their tuples of the moment that settles them."""
        return [(self.executions, 0), (self.waits, 1), (self.recordings, 2), (self.compiles, 1), (self.holes, 1)]

    def relieve(self, most: int) -> None:
        """Forget the older half of each list that nothing settles and that has ``most`` items or more."""
        for held, _ in self.pending():
            if len(held) >= most:
                del held[: len(held) // 2]

    def merge(self, other: Schedule, ids: Ids) -> None:
        """Keep another recording's batches beside our own, their ids mapped to ours."""
        for part in other.parts():
            mapped = [(number, batch.mapped(ids)) for number, batch in part.batches]
            self.others.append(Schedule(mapped, [], part.seen, part.span, part.digest_ns, part.end))

    def parts(self) -> Iterable[Schedule]:
        """The schedule of each recording: this one's and those merged into it."""
        return [part for part in (self, *self.others) if part.batches]


_T = TypeVar("_T", bound=tuple[int, ...])


def _take(items: list[_T], horizon: int | None, moment: int) -> list[_T]:
    """Remove and return, sorted, the items up to ``horizon``; ``moment``: the position of their time."""
    late = [] if horizon is None else [one for one in items if one[moment] > horizon]
    due = [one for one in items if one[moment] <= horizon] if late and horizon is not None else items[:]
    items[:] = late
    due.sort()
    return due
