"""A batch of a schedule as a list of items: the host's work in order, and the programs it handed to devices.

Replayed unchanged, the list takes the recorded time to the nanosecond: a wait of the host names the execution it waits
for, and all other items have their recorded length.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from math import inf
from typing import NamedTuple
from weakref import WeakKeyDictionary

from xlaprof.analysis.principles import STOPS_NS
from xlaprof.analysis.sums import median
from xlaprof.analysis.timeline import host
from xlaprof.analysis.timeline.idle import STRONG, Cause, Seen
from xlaprof.analysis.timeline.schedule import Batch

#: ns to record an operation on a known path, for programs that never took a path twice
KNOWN_OPERATION_NS = 10_000
#: ns to record an operation on a new path; an operation that takes longer is the first of its kind
NEW_OPERATION_NS = 100_000
_LATE = 1_000_000  # ns by which the end of an execution may be seen too late

#: Items: (HOST, ns, key, 0), (RUN, ns, device, stack of its read), (WAIT, execution, key, lag), (MARK, 0, 0, 0).
HOST, RUN, WAIT, MARK = range(4)
Item = tuple[int, int, int, int]


class Key(NamedTuple):
    """The reason for a stretch of host time."""

    cause: Cause
    stack: int = 0
    compile: int = 0  # begin of the compile it belongs to, as does recording the graph (TRACING); 0: none
    early: bool = False  # before anything ran on a device


class _Piece(NamedTuple):
    """A stretch of host time. A piece with a ``wait`` lasts until that wait is over."""

    start: int
    end: int
    key: Key
    wait: int = -1


class _Pause(NamedTuple):
    """The host waited over ``[start, end)``, up to ``lag`` ns after the end of an execution."""

    start: int
    end: int
    execution: int
    lag: int


class Share(NamedTuple):
    """Shares of the time that recording a graph took."""

    known: float  # that it would have taken on a known path
    first: float  # of the first operations of their kind: a smaller graph needs them, too


class Lanes:
    """The items of a batch, in order."""

    __slots__ = ("_spent", "items", "keys", "known", "marks", "overlaps", "waited")

    def __init__(self, batch: Batch) -> None:
        self.keys: list[Key] = []
        self.items: list[Item] = []
        self.marks: list[tuple[int, int]] = []  # of each step: the numbers of its begin's and its end's MARK
        self.waited: dict[int, int] = {}  # key -> ns the host waited under it
        self._spent: dict[Key, int] | None = None
        pieces, self.known = _with_recording(batch, list(_pieces(batch)))
        pauses = _pauses(batch)
        self.overlaps = _overlaps(batch, pauses)  # of each execution: ns in which the host was busy, too
        numbers: dict[Key, int] = {}
        points = self._points(batch)
        due = 0
        for start, end, key, wait in _with_pauses(pieces, pauses):
            if end <= batch.first_run:
                key = key._replace(early=True)
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = len(self.keys)
                self.keys.append(key)
            while due < len(points) and points[due][0] < start + (wait < 0):
                self.items.append(points[due][1])
                due += 1
            if wait >= 0:
                pause = pauses[wait]
                self.items.append((WAIT, pause.execution, number, pause.lag))
                self.waited[number] = self.waited.get(number, 0) + pause.end - pause.start
                continue
            while due < len(points) and points[due][0] < end:
                moment, item = points[due]
                if moment > start:
                    self.items.append((HOST, moment - start, number, 0))
                    start = moment
                self.items.append(item)
                due += 1
            self.items.append((HOST, end - start, number, 0))
        self.items += [item for _, item in points[due:]]

    def _points(self, batch: Batch) -> list[tuple[int, Item]]:
        """The moments at which programs are handed to devices and steps begin and end, with their items."""
        marks = sorted({moment for step in batch.steps for moment in (step.start, step.end)})
        numbers = {moment: number for number, moment in enumerate(marks)}
        self.marks = [(numbers[step.start], numbers[step.end]) for step in batch.steps]
        points = [(moment, (MARK, 0, 0, 0)) for moment in marks]
        points += [(one.enqueued, (RUN, max(0, one.end - one.start), one.device, one.read)) for one in batch.executions]
        points.sort(key=lambda point: point[0])  # stable: executions stay in their order
        return points

    def spent(self) -> dict[Key, int]:
        """ns of host time by key, waits included; added up once."""
        if self._spent is None:
            spent = dict(self.waited)
            for kind, ns, number, _ in self.items:
                if kind == HOST:
                    spent[number] = spent.get(number, 0) + ns
            self._spent = {self.keys[number]: ns for number, ns in spent.items()}
        return self._spent


def lanes_of(batch: Batch) -> Lanes:
    """The lanes of a batch, made once."""
    lanes = _MADE.get(batch)
    if lanes is None:
        lanes = _MADE[batch] = Lanes(batch)
    return lanes


_MADE: WeakKeyDictionary[Batch, Lanes] = WeakKeyDictionary()


def _pieces(batch: Batch) -> Iterator[_Piece]:
    """All of the batch, cut where what the host did changes.

    Where the host has no event, it ran plain Python between two lines, or other. There, and in scopes, samples say
    more.
    """
    found = _laid(
        _painted(batch),
        [_Piece(start, end, Key((before, after))) for start, end, before, after in batch.holes],
        _is_blank,
    )
    samples = [_Piece(start, end, Key(seen)) for start, end, seen in batch.samples]
    return _laid(found, samples, _says_more) if samples else found


def _painted(batch: Batch) -> Iterator[_Piece]:
    """The segments of the host's timeline, and blanks."""
    starts = [one.start for one in batch.compiles]
    cursor = batch.start
    for start, end, cause, stack in batch.segments:
        start, end = max(start, cursor), min(end, batch.end)
        if end <= start:
            continue
        if start > cursor:
            yield _Piece(cursor, start, Key(host.OTHER))
        nth = bisect_right(starts, start) - 1
        inside = nth >= 0 and end <= batch.compiles[nth].end
        yield _Piece(start, end, Key(cause, stack, starts[nth] if inside else 0))
        cursor = end
    if cursor < batch.end:
        yield _Piece(cursor, batch.end, Key(host.OTHER))


def _laid(pieces: Iterable[_Piece], others: list[_Piece], lie_over: Callable[[Cause, Cause], bool]) -> Iterator[_Piece]:
    """The pieces, in the place of each the ``others``, sorted and disjoint, that ``lie_over`` it."""
    ends = [one.end for one in others]
    for piece in pieces:
        start, end, key, _ = piece
        for nth in range(bisect_right(ends, start), len(others)):
            since, until, other, _ = others[nth]
            if since >= end:
                break
            since, until = max(since, start), min(until, end)
            if until <= since or not lie_over(other.cause, key.cause):
                continue
            if since > start:
                yield _Piece(start, since, key)
            yield _Piece(since, until, other)
            start = until
        if end > start:
            yield _Piece(start, end, key)


def _is_blank(_: Cause, cause: Cause) -> bool:
    return cause == host.OTHER


def _says_more(seen: Cause, cause: Cause) -> bool:
    """Whether a sample says more than an event of the host, or than there being none."""
    if _is_scope(cause):
        return isinstance(seen, Seen) and seen.cause in STRONG
    return isinstance(cause, tuple) or cause == host.OTHER


def _with_recording(batch: Batch, pieces: list[_Piece]) -> tuple[list[_Piece], dict[int, Share]]:
    """The pieces, where recording a graph counts for the compile it led to; and the shares of each such compile.

    Graphs are recorded where the host has no other event, and in named scopes.
    """
    starts = [piece.start for piece in pieces]
    over = [one.done for one in batch.recordings]
    left = [one.ns for one in batch.recordings]
    cut: dict[int, list[_Piece]] = {}
    spent: list[tuple[int, int, int]] = []
    compiling = set()
    floor = batch.start
    for compile in batch.compiles:
        nth = bisect_right(over, compile.start)
        known = nth < len(over) and batch.recordings[nth].start <= compile.start
        floor = max(floor, over[nth - 1] if nth else floor, batch.recordings[nth].start if known else floor)
        before = [n for n in range(bisect_left(starts, floor), bisect_left(starts, compile.start)) if n not in cut]
        blank = [n for n in before if pieces[n].key.cause == host.OTHER]
        total = 0
        if known:
            compiling.add(nth)
            blank += [n for n in before if _is_scope(pieces[n].key.cause)]
        for n in blank:
            start, end, key, _ = pieces[n]
            took = min(end - start, left[nth]) if known else end - start
            if known:
                left[nth] -= took
            if took > 0:
                total += took
                cut[n] = [_Piece(start, start + took, Key(host.TRACING, 0, compile.start))]
                if start + took < end:
                    cut[n].append(_Piece(start + took, end, key))
        spent.append((compile.start, total, compile.ops))
        floor = max(floor, compile.end)
    again = [one.ns / one.ops for n, one in enumerate(batch.recordings) if one.ops > 0 and n not in compiling]
    each = median(again) if again else KNOWN_OPERATION_NS
    shares = {
        moment: Share(min(1.0, each * ops / ns), max(0.0, 1 - NEW_OPERATION_NS * ops / ns)) if ns else Share(1.0, 0.0)
        for moment, ns, ops in spent
    }
    return [part for n, piece in enumerate(pieces) for part in cut.get(n, (piece,))], shares


def _is_scope(cause: Cause) -> bool:
    return not isinstance(cause, tuple) and cause >= host.SCOPE


def _pauses(batch: Batch) -> list[_Pause]:
    """The execution of each wait. A value that was computed already is a wait of no length."""
    handed = [one.enqueued for one in batch.executions]
    ends = sorted((one.end, number) for number, one in enumerate(batch.executions))
    pauses: list[_Pause] = []
    free = batch.start
    for start, end, waited in batch.waits:
        start, end = max(start, free), min(end, batch.end)
        if end < start:
            continue
        waiting = waited > STOPS_NS
        number = bisect_left(handed, end) - 1
        if number < 0 or handed[number] < start:  # nothing handed over inside the wait: it was for what just ended
            nth = bisect_right(ends, end + _LATE if waiting else start, key=lambda one: one[0]) - 1
            number = ends[nth][1] if nth >= 0 else -1
            if number < 0 or handed[number] >= end:
                continue
        execution = batch.executions[number]
        if waiting and execution.end > max(start, execution.enqueued):
            over = min(execution.end, end)
            begin = max(over - waited, start, min(execution.enqueued, over))
            pauses.append(_Pause(begin, over, number, over - execution.end))
            free = over
        else:
            at = end if handed[number] >= start else min(start + 1, end)  # 1 ns into the read, so that it counts for it
            pauses.append(_Pause(at, at, number, min(0, at - execution.end)))
            free = end
    return pauses


def _overlaps(batch: Batch, pauses: list[_Pause]) -> list[int]:
    ends = [pause.end for pause in pauses]
    paused = [0, *accumulate(pause.end - pause.start for pause in pauses)]

    def busy(moment: int) -> int:
        """ns the host was busy by then."""
        moment = min(max(moment, batch.start), batch.end)
        nth = bisect_right(ends, moment)
        inside = max(0, moment - pauses[nth].start) if nth < len(pauses) else 0
        return moment - batch.start - paused[nth] - inside

    return [max(0, busy(one.end) - busy(one.start)) for one in batch.executions]


def _with_pauses(pieces: list[_Piece], pauses: list[_Pause]) -> Iterator[_Piece]:
    """The pieces with the pauses in their places."""
    nth = 0
    due = pauses[0].start if pauses else inf
    for piece in pieces:
        start, end, key, _ = piece
        if start < end < due:
            yield piece
            continue
        while nth < len(pauses) and pauses[nth].end <= end:
            pause = pauses[nth]
            if pause.start > start:
                yield _Piece(start, pause.start, key)
            yield _Piece(pause.end, pause.end, key, nth)
            start = max(start, pause.end)
            nth += 1
        if nth == len(pauses):
            due = inf
        else:
            due = pauses[nth].start
            if due < end:  # the pause goes on after this piece
                end = max(start, pauses[nth].start)
        if end > start:
            yield _Piece(start, end, key)
