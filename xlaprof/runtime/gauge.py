"""How much is alive on the device, now and then, and where what stays alive was made.

Read at barriers while a recording is on: at most every 100 ms, and so seldom that it takes a thousandth of the time.
The first readings come at set barriers instead, closer together at the beginning, for runs that are over by then, and
so that a run of so many steps is told the same on every machine: a few milliseconds of work in all.
Of the tensors a few are remembered, weakly: those made in the step of a reading. What of them is still there several
readings later, somebody keeps.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter, deque
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from xlaprof import events

if TYPE_CHECKING:
    from xlaprof.recorder import Recorder
    from xlaprof.stacks import RawFrame

    from .cells import Cell
    from .tape import Tape

EVERY_NS = 100_000_000
_SHARE = 1000  # a reading may take this part of the time between two
_APART, _WIDER = 4, 1.1  # barriers between the first readings, at least; and from one to the next, by this factor
_FIRST_NS = 20_000_000  # CPU time that these may take in all
_READINGS = 32  # whose tensors are remembered
_TENSORS = 256  # remembered of one reading
_AGE = 3  # readings after which what is alive is kept
_LINES = 3  # told of


class _Made(NamedTuple):
    array: weakref.ref[Any]
    slot: int  # in order of recording
    frames: tuple[RawFrame, ...]
    size: int


def _size(array: Any) -> int:
    """What ``array.nbytes`` tells, five times as fast."""
    size: int = math.prod(array.shape) * array.dtype.itemsize
    return size


class Gauge:
    """The state of these readings; one per process, like the recording."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """A recording begins."""
        self.due = 0  # the moment of the next reading
        self._barriers = 0
        self._next = 0  # the barrier of the next of the first readings
        self._left_ns = _FIRST_NS
        self._made: deque[list[_Made]] = deque(maxlen=_READINGS)

    def is_due(self, now: int) -> bool:
        """Whether a barrier that begins at ``now`` is one to read at. Asked once of each."""
        self._barriers += 1
        return now >= self.due or (self._barriers >= self._next and self._left_ns > 0)

    def read(self, rec: Recorder, tape: Tape, fresh: list[Cell]) -> None:
        """Tell what is alive on ``tape``'s device; ``fresh``: what was made since the barrier before, computed now."""
        start, began = perf_counter_ns(), thread_time_ns()
        arrays = [array for array in jax.live_arrays(tape.device.platform) if not array.is_deleted()]
        size = sum(map(_size, arrays))
        held = [[rec.stack(frames), count, total] for frames, count, total in self._kept()]
        rec.emit(events.Live(start, len(arrays), size, held, rec.thread()))
        made = (cell for cell in fresh[-_TENSORS:] if cell.frames and isinstance(cell.array, jax.Array))
        self._made.append([_Made(weakref.ref(c.array), c.slot, c.frames, _size(c.array)) for c in made])
        cost = thread_time_ns() - began
        self._left_ns -= cost
        self._next = max(self._barriers + _APART, int(self._barriers * _WIDER))
        self.due = perf_counter_ns() + max(EVERY_NS, _SHARE * cost)

    def _kept(self) -> list[tuple[tuple[RawFrame, ...], int, int]]:
        """Lines whose tensors outlive several readings, with their number and bytes.

        First the one that is last in its step: of a loss that is kept with its history, that is the loss. Then those
        with the most tensors.
        """
        last: Counter[tuple[RawFrame, ...]] = Counter()
        count: Counter[tuple[RawFrame, ...]] = Counter()
        size: Counter[tuple[RawFrame, ...]] = Counter()
        for reading in list(self._made)[:-_AGE]:
            reading[:] = [one for one in reading if one.array() is not None]
            for one in reading:
                count[one.frames] += 1
                size[one.frames] += one.size
            if reading:
                last[max(reading, key=lambda one: one.slot).frames] += 1
        lines = [frames for frames, _ in last.most_common(1)]
        lines += [frames for frames, _ in count.most_common(_LINES) if frames not in lines]
        return [(frames, count[frames], size[frames]) for frames in lines if count[frames] >= _AGE]


gauge = Gauge()
