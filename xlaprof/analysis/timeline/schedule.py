"""What ran when, host and device: kept to be run again without a defect (:mod:`~xlaprof.analysis.whatif.critical`).

A recording is settled in batches (``window.Window``); each is a stretch of time with all that
host and device did in it. Short recordings keep all of theirs. Of a long one every second batch is kept, then every
fourth, and so on: an even sample, of bounded size, which always has the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from .host import SCOPE, Segment
from .idle import Hollow, Sighting

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
    """``ns`` of ``[start, end)`` were spent recording ``ops`` operations for the barrier that was over at ``done``."""

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


class Batch:
    """All that happened in ``[start, end)``. ``segments``, ``holes`` and ``sightings`` are sorted and disjoint."""

    __slots__ = (
        "__weakref__", "compiled", "end", "executions", "first_run", "holes", "recorded", "segments", "sightings",
        "start", "steps", "waits",
    )  # fmt: skip

    def __init__(
        self,
        start: int,
        end: int,
        *,
        segments: Sequence[Segment],
        holes: Sequence[Hollow],
        executions: Sequence[Execution],
        waits: Sequence[Wait],
        recorded: Sequence[Recorded],
        compiled: Sequence[Compiled],
        steps: Sequence[StepSpan],
        sightings: Sequence[Sighting],
        first_run: int,
    ) -> None:
        self.start = start
        self.end = end
        self.segments = segments
        self.holes = holes
        self.executions = executions
        self.waits = waits
        self.recorded = recorded
        self.compiled = compiled
        self.steps = steps
        self.sightings = sightings
        self.first_run = first_run  # when the recording's first execution was handed over, or later than all of this

    @property
    def size(self) -> int:
        lists = (self.segments, self.executions, self.waits, self.holes, self.sightings)
        return sum(map(len, lists))


class Schedule:
    """The batches kept of one recording, and those of the recordings merged into it."""

    __slots__ = (
        "_compiled", "_executions", "_first_run", "_holes", "_recorded", "_stride", "_waits", "batches", "compiled",
        "end", "executed", "hole", "others", "recorded", "seen", "span", "told", "waited",
    )  # fmt: skip

    def __init__(self) -> None:
        self.batches: list[tuple[int, Batch]] = []  # with their number
        self.others: list[Schedule] = []
        self.seen = 0  # batches, kept or not, and
        self.span = 0  # their ns
        self.told = 0  # ns of them known only as digests
        self.end: int | None = None  # of the last of them
        self._stride = 1
        self._first_run: int | None = None
        # What is not settled, in whatever order it is told, as bare tuples of what Execution, Wait... name: of a long
        # recording most is never looked at again. They are told by appending, bound once.
        self._executions: list[tuple[int, int, int, int, int]] = []
        self._waits: list[tuple[int, int, int]] = []
        self._recorded: list[tuple[int, int, int, int, int]] = []
        self._compiled: list[tuple[int, int, int]] = []
        self._holes: list[tuple[int, int, int, int]] = []
        self.executed = self._executions.append
        self.waited = self._waits.append
        self.recorded = self._recorded.append
        self.compiled = self._compiled.append
        self.hole = self._holes.append

    # -- settling

    def settle(
        self,
        horizon: int | None,
        segments: Sequence[Segment],
        steps: Sequence[tuple[int, int, int, int, int, bool, int]],
        sightings: Sequence[Sighting] = (),
    ) -> None:
        """Everything before ``horizon`` (None: everything) is known; ``segments``, ``steps`` (start, end,
        number, ordinal, name, first, tracing) and ``sightings`` are what is new.
        """
        if horizon is not None and not self.keeps_next:
            self.skip(horizon, bool(segments or steps))
            return
        executions = _take(self._executions, horizon, 0)
        waits = _take(self._waits, horizon, 1)
        recorded = _take(self._recorded, horizon, 2)
        compiled = _take(self._compiled, horizon, 1)
        holes = _take(self._holes, horizon, 1)
        told: list[Sequence[tuple[int, ...]]] = [segments, steps, executions, waits, recorded, compiled, holes]
        if not any(told):
            return
        start = min(one[0] for part in told for one in part) if self.end is None else self.end
        if horizon is None:
            ends = [one[1] for part in (segments, steps, waits, recorded, holes) for one in part[-1:]]
            horizon = max([start, *ends, *(one[0] for one in executions[-1:])])
        horizon = max(horizon, start)
        self.end = horizon
        if self._first_run is None and executions:
            self._first_run = executions[0][0]
        self.span += horizon - start
        number = self.seen
        self.seen += 1
        if number % self._stride == 0:
            batch = Batch(
                start,
                horizon,
                segments=segments,
                holes=[Hollow(*one) for one in holes],
                executions=[Execution(*one) for one in executions],
                waits=[Wait(*one) for one in waits],
                recorded=[Recorded(*one) for one in recorded],
                compiled=[Compiled(*one) for one in compiled],
                steps=[StepSpan(start, end, name, first) for start, end, _, _, name, first, _ in steps],
                sightings=sightings,
                first_run=horizon if self._first_run is None else self._first_run,
            )
            self.batches.append((number, batch))
            while len(self.batches) > 2 and sum(batch.size for _, batch in self.batches) > _LIMIT:
                self._stride *= 2
                self.batches = [kept for kept in self.batches if kept[0] % self._stride == 0]

    @property
    def keeps_next(self) -> bool:
        """The next batch is kept; or else it is all the same what is in it."""
        return self.end is None or self._first_run is None or not self.seen % self._stride

    def skip(self, horizon: int, anything: bool) -> None:
        """Settle a batch that is not kept: nothing of it has to be in order."""
        assert self.end is not None
        told: list[tuple[list[Any], int]] = [
            (self._executions, 0), (self._waits, 1), (self._recorded, 2), (self._compiled, 1), (self._holes, 1)
        ]  # fmt: skip
        for items, moment in told:
            late = [one for one in items if one[moment] > horizon]
            anything = anything or len(late) < len(items)
            items[:] = late
        if anything:
            horizon = max(horizon, self.end)
            self.span += horizon - self.end
            self.end = horizon
            self.seen += 1

    def relieve(self, most: int) -> None:
        """Of ``most`` things of a kind or more that nothing settles, forget the older half."""
        for held in (self._executions, self._waits, self._recorded, self._compiled, self._holes):
            if len(held) >= most:
                del held[: len(held) // 2]

    def copy(self) -> Schedule:
        """A twin that can be settled without touching this one."""
        twin = Schedule()
        twin.batches, twin.others = self.batches.copy(), self.others.copy()
        twin.seen, twin.span, twin.told, twin.end = self.seen, self.span, self.told, self.end
        twin._stride, twin._first_run = self._stride, self._first_run
        twin._executions += self._executions
        twin._waits += self._waits
        twin._recorded += self._recorded
        twin._compiled += self._compiled
        twin._holes += self._holes
        return twin

    def merge(self, other: Schedule, texts: dict[int, int], stacks: dict[int, int]) -> None:
        """Keep another recording's batches beside our own, their ids mapped to ours."""
        for part in (other, *other.others):
            if part.batches:
                self.others.append(part._named(texts, stacks))

    def parts(self) -> Iterable[Schedule]:
        """The schedule of each recording: this one's and those merged into it."""
        return [part for part in (self, *self.others) if part.batches]

    def _named(self, texts: dict[int, int], stacks: dict[int, int]) -> Schedule:
        twin = Schedule()
        twin.seen, twin.span, twin.told, twin.end = self.seen, self.span, self.told, self.end
        for number, batch in self.batches:
            segments = [
                (start, end, SCOPE + texts.get(cause - SCOPE, 0) if cause >= SCOPE else cause, stacks.get(stack, 0))
                for start, end, cause, stack in batch.segments
            ]
            holes = [
                hole._replace(before=stacks.get(hole.before, 0), after=stacks.get(hole.after, 0))
                for hole in batch.holes
            ]
            sightings = [
                one._replace(seen=one.seen._replace(stack=stacks.get(one.seen.stack, 0), at=stacks.get(one.seen.at, 0)))
                for one in batch.sightings
            ]
            steps = [step._replace(name=texts.get(step.name, 0)) for step in batch.steps]
            named = Batch(
                batch.start,
                batch.end,
                segments=segments,
                holes=holes,
                executions=batch.executions,
                waits=batch.waits,
                recorded=batch.recorded,
                compiled=batch.compiled,
                steps=steps,
                sightings=sightings,
                first_run=batch.first_run,
            )
            named.executions = [one._replace(read=stacks.get(one.read, 0)) for one in batch.executions]
            twin.batches.append((number, named))
        return twin


_T = TypeVar("_T", bound=tuple[int, ...])


def _take(items: list[_T], horizon: int | None, moment: int) -> list[_T]:
    """Remove and return, sorted, what came by ``horizon``; ``moment``: the place of its time."""
    late = [] if horizon is None else [one for one in items if one[moment] > horizon]
    taken = [one for one in items if one[moment] <= horizon] if late and horizon is not None else items[:]
    items[:] = late
    taken.sort()
    return taken
