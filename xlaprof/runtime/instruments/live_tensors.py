"""Samples the live tensors of the device, and finds the lines that made those that stay alive.

While a recording is on, it reads them at barriers: at most every 100 ms, and seldom enough to take a thousandth of the
time. The first readings instead come at fixed barriers, closer together at the beginning: short runs have some too, and
runs of equally many steps are reported alike on every machine. They take a few milliseconds in all.

A reading keeps weak references to some tensors made in its step. Those still alive several readings later are retained
by the program. If there are more tensors at nearly every reading, the program's containers are searched twice, and the
one that has grown in between is reported.
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
_SHARE = 1000  # the time between two readings is at least this many times the time of one
_APART, _GROWTH = 4, 1.1  # barriers between two of the first readings: at least, and growing by this factor
_FIRST_NS = 20_000_000  # CPU time of all first readings
_READINGS = 32  # readings whose tensors are remembered
_TENSORS = 256  # tensors remembered per reading
_AGE = 3  # readings that a retained tensor has outlived
_LINES = 3  # lines reported per reading
_RISES = 5  # readings in a row with more tensors, before the first search for a retainer
_SEARCHES = 6  # searches at most, further and further apart
_BETWEEN_SEARCHES = 3  # readings between the first two searches
_RETAINING_LINES = 4  # lines reported per retainer


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
        self._tensors = 0  # alive at the last reading
        self._searches = 0
        self._search_at = 0  # the number of rises at which to search next
        self._lengths: dict[str, int] = {}  # path of a retainer -> its length at the last search

    def is_due(self, now: int) -> bool:
        """Is the barrier that begins at ``now`` one to read at? Call it once per barrier."""
        self._barriers += 1
        return now >= self.due or (self._barriers >= self._next and self._left_ns > 0)

    def read(self, rec: Recorder, tape: Tape, fresh: list[Storage]) -> None:
        """Emit the live tensors of ``tape``'s device. ``fresh``: storages that got their first value now."""
        start, began = perf_counter_ns(), thread_time_ns()
        arrays = [array for array in jax.live_arrays(tape.device.platform) if not array.is_deleted()]
        size = sum(map(_size, arrays))
        lines = self._retained_lines()
        held = [[rec.stack(frames), count, total] for frames, count, total in lines]
        search_ns = thread_time_ns()
        kept = None
        if self._rising(len(arrays)) and lines:
            kept = self._grown_retainer(rec, [frames for frames, _, _ in lines])
        search_ns = thread_time_ns() - search_ns
        rec.emit(events.Live(start, len(arrays), size, held, rec.thread(), kept))
        made = (storage for storage in fresh[-_TENSORS:] if storage.frames and isinstance(storage.array, jax.Array))
        self._made.append([_Made(weakref.ref(c.array), c.slot, c.frames, _size(c.array)) for c in made])
        cost = thread_time_ns() - began - search_ns  # searches have their own limit
        self._left_ns -= cost
        self._next = max(self._barriers + _APART, int(self._barriers * _GROWTH))
        self.due = perf_counter_ns() + max(EVERY_NS, _SHARE * cost)

    def _rising(self, tensors: int) -> bool:
        """Is it time to search for a retainer, with ``tensors`` alive now?"""
        self._rises = self._rises + 1 if tensors > self._tensors else 0
        self._tensors = tensors
        return self._searches < _SEARCHES and self._rises >= max(_RISES, self._search_at)

    def _grown_retainer(self, rec: Recorder, made: list[tuple[RawFrame, ...]]) -> events.Kept | None:
        """The container with tensors made there that has grown most since the last search; None: none yet."""
        found = retainers(made)
        before = self._lengths
        grown = [one for one in found if one.length > before.get(one.path, one.length)]
        self._lengths = {one.path: one.length for one in reversed(found)}  # of one path the longest
        self._searches += 1
        self._search_at = self._rises + _BETWEEN_SEARCHES * 2 ** (self._searches // 2)
        if not grown:
            return None
        self._searches = _SEARCHES
        # a history retains what its layers made, too: detached numbers next to it are not what fills the memory
        best = max(grown, key=lambda one: (one.history, one.length - before[one.path]))
        puts = [rec.stack((frame,)) for frame in retaining_lines(best.name, best.owner, best.files)[:_RETAINING_LINES]]
        return events.Kept(best.path, best.kind, best.length, best.history, puts)

    def _retained_lines(self) -> list[tuple[tuple[RawFrame, ...], int, int]]:
        """Lines whose tensors outlive several readings, with their number and bytes.

        First the one that is last in its step: for a loss retained with its history, the loss. Then those with the most
        tensors.
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
