"""Samples the live tensors of the device, and finds where those were made that stay alive.

Read at barriers while a recording is on: at most every 100 ms, and so seldom that it takes a thousandth of the time.
The first readings come at set barriers instead, closer together at the beginning, for runs that are over by then, and
so that runs of as many steps are reported alike on every machine: a few milliseconds of work in all.
Of the tensors a few are remembered, weakly: those made in the step of a reading. What of them is still there several
readings later, somebody keeps. Where there are more tensors at nearly every reading, the program's lists and dicts are
searched for what retains them, twice: the one that has grown in between is reported.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter, deque
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from xlaprof import events

from . import hooks
from .retainers import retainers
from .retaining_lines import retaining_lines

if TYPE_CHECKING:
    from xlaprof.recording.recorder import Recorder
    from xlaprof.recording.stacks import RawFrame
    from xlaprof.runtime.tape.tape import Tape
    from xlaprof.runtime.trace.storage import Storage

EVERY_NS = 100_000_000
_SHARE = 1000  # a reading may take this part of the time between two
_APART, _WIDER = 4, 1.1  # barriers between the first readings, at least; and from one to the next, by this factor
_FIRST_NS = 20_000_000  # CPU time that these may take in all
_READINGS = 32  # whose tensors are remembered
_TENSORS = 256  # remembered of one reading
_AGE = 3  # readings after which what is alive is kept
_LINES = 3  # reported
_RISES = 5  # readings, each with more tensors than the one before, until it is looked for what keeps them
_LOOKS = 6  # as often at most, for longer recordings ever more seldom
_APART_LOOKS = 3  # readings
_PUTS = 4  # lines reported


class _Made(NamedTuple):
    array: weakref.ref[Any]
    slot: int  # in order of recording
    frames: tuple[RawFrame, ...]
    size: int


def _size(array: Any) -> int:
    """``array.nbytes``, five times as fast."""
    size: int = math.prod(array.shape) * array.dtype.itemsize
    return size


class Readings:
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
        self._rises = 0  # readings in a row that had more tensors than the one before
        self._tensors = 0  # at the last reading
        self._looks = 0
        self._look_at = 0  # the rise at which to look next for what keeps them
        self._lengths: dict[str, int] = {}  # of what was found to keep some

    def is_due(self, now: int) -> bool:
        """Whether a barrier that begins at ``now`` is one to read at. Asked once of each."""
        self._barriers += 1
        return now >= self.due or (self._barriers >= self._next and self._left_ns > 0)

    def read(self, rec: Recorder, tape: Tape, fresh: list[Storage]) -> None:
        """Emit what is alive on ``tape``'s device; ``fresh``: what was made since the barrier before, computed now."""
        start, began = perf_counter_ns(), thread_time_ns()
        arrays = [array for array in jax.live_arrays(tape.device.platform) if not array.is_deleted()]
        size = sum(map(_size, arrays))
        lines = self._kept()
        held = [[rec.stack(frames), count, total] for frames, count, total in lines]
        looked = thread_time_ns()
        kept = self._keeper(rec, [frames for frames, _, _ in lines]) if self._rising(len(arrays)) and lines else None
        looked = thread_time_ns() - looked
        rec.emit(events.Live(start, len(arrays), size, held, rec.thread(), kept))
        made = (storage for storage in fresh[-_TENSORS:] if storage.frames and isinstance(storage.array, jax.Array))
        self._made.append([_Made(weakref.ref(c.array), c.slot, c.frames, _size(c.array)) for c in made])
        cost = thread_time_ns() - began - looked  # which is bounded by itself
        self._left_ns -= cost
        self._next = max(self._barriers + _APART, int(self._barriers * _WIDER))
        self.due = perf_counter_ns() + max(EVERY_NS, _SHARE * cost)

    def _rising(self, tensors: int) -> bool:
        """Whether it is time to look for what keeps tensors, of which there are so many now."""
        self._rises = self._rises + 1 if tensors > self._tensors else 0
        self._tensors = tensors
        return self._looks < _LOOKS and self._rises >= max(_RISES, self._look_at)

    def _keeper(self, rec: Recorder, made: list[tuple[RawFrame, ...]]) -> events.Kept | None:
        """The container with tensors made there that has grown most since it was looked at before; None: none yet."""
        found = retainers(made)
        before = self._lengths
        grown = [one for one in found if one.length > before.get(one.path, one.length)]
        self._lengths = {one.path: one.length for one in found}
        self._looks += 1
        self._look_at = self._rises + _APART_LOOKS * 2 ** (self._looks // 2)
        if not grown:
            return None
        self._looks = _LOOKS
        best = max(grown, key=lambda one: one.length - before[one.path])
        puts = [rec.stack((frame,)) for frame in retaining_lines(best.name, best.owner, best.files)[:_PUTS]]
        return events.Kept(best.path, best.kind, best.length, best.history, puts)

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


readings = Readings()


def _barrier_ended(tape: Tape, start: int, rec: Recorder | None, fresh: list[Storage]) -> None:
    if rec is not None and readings.is_due(start):
        readings.read(rec, tape, fresh)


hooks.barrier_ended.append(_barrier_ended)
