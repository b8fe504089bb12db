"""Whether data that a line brings to the device is what it brought before.

The content decides: a table made anew in each step is the same data, a buffer that was filled again is not. Contents
are compared by digests, in this process: none of it is written. Small arrays are digested whole. Of a larger one a
sample is; that the sample does not deceive is verified, ever more rarely, with digests of all of it. All of this
together takes a small share of the program's time, whatever the program does: where that is used up, the answer is the
one before.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from functools import lru_cache
from time import perf_counter_ns
from typing import Any
from zlib import crc32

from xlaprof.text.strings import array_text

SHARE = 1 / 256  # of the time since the recording began, for all comparisons
AT_ONCE_NS = 10_000_000  # for them at any time
WHOLE = 4_096  # bytes of an array that is digested whole
_BLOCKS, _BLOCK = 64, 64  # of a larger one: so many stretches of so many bytes
_TURNS = 3  # arrays of one shape that a line brings in turns: more of them are a data set that it walks through,
_HELD = 16  # unless they are no more than these,
_WALKS = 8  # and it walked through them so often: they are few enough to stay on the device
_TRUSTED = 2  # samples of arrays of one place that did not deceive: those of the others do not either
_PLACES = 4_096  # lines and shapes kept apart
_DIGESTED = 2.0  # bytes a nanosecond, about


class _Data:
    """What a line brought to the device."""

    __slots__ = ("digest", "due", "mark", "times", "verified", "where")

    def __init__(self, mark: int, where: int) -> None:
        self.mark, self.where = mark, where  # of the sample; in memory
        self.digest: int | None = None  # of all of it
        self.verified = False  # the whole of it came again
        self.times, self.due = 0, 0  # it came again, and when its digest is to be compared


class _Place:
    """What one line brings that has one shape."""

    __slots__ = ("answer", "deceived", "held", "verified")

    def __init__(self) -> None:
        self.held: list[_Data] = []  # the latest is the last
        self.answer = self.deceived = False
        self.verified = 0  # arrays all of which came again


class Repeats:
    """Of one recording. Threads may share it: at worst one comparison is missed."""

    def __init__(self) -> None:
        self._places: dict[Hashable, _Place] = {}
        self._began = perf_counter_ns()
        self._spent = 0

    def again(self, place: Hashable, array: Any) -> bool:
        """Whether ``place`` brought the content of this NumPy array before: as one of its last few of this shape, or
        of several that come again and again.

        ``False`` for arrays of Python objects, and until all of a large array was seen to come again; where there is no
        time to look at all of it, a sample of the same memory decides.
        """
        began = perf_counter_ns()
        key = (place, array.shape, array.dtype.num)
        known = self._places.get(key)
        if self._spent > AT_ONCE_NS + (began - self._began) * SHARE or array.dtype.hasobject:
            return known is not None and bool(known.answer)
        if known is None:
            if len(self._places) >= _PLACES:
                self._places.clear()
            known = self._places[key] = _Place()
        known.answer = self._compare(known, array, began)
        self._spent += perf_counter_ns() - began
        return known.answer

    def _compare(self, place: _Place, array: Any, now: int) -> bool:
        mark, whole = _mark(array), bool(array.nbytes <= WHOLE)
        turn = next((turn for turn, data in enumerate(reversed(place.held)) if data.mark == mark), -1)
        if turn < 0:
            place.held = [*place.held[1 - _HELD :], _Data(mark, _where(array))]
            return False
        data = place.held[-1 - turn]
        if turn:
            place.held = [*(one for one in place.held if one is not data), data]
        data.times += 1
        if turn >= _TURNS and data.times < _WALKS:
            return False
        if whole or place.deceived:
            return whole
        if place.verified >= _TRUSTED and not data.verified:
            data.verified, data.due = True, 2 * data.times
        if data.times >= data.due and self._may_digest(array.nbytes, now):
            digest = _digest(array)
            if data.digest is not None and digest != data.digest:
                place.deceived = True  # it changes where the sample does not look
                return False
            place.verified += not data.verified and data.digest is not None
            data.verified, data.digest = data.digest is not None or data.verified, digest
            data.due = 2 * data.times if data.verified else 0
        if data.verified or self._may_digest(array.nbytes, now):
            return data.verified
        return _where(array) == data.where  # as long as there is no time for more: it lies where it lay

    def _may_digest(self, size: int, now: int) -> bool:
        """Half of the time is for samples: with a digest that takes it all, nothing else would be compared."""
        return self._spent + size / _DIGESTED <= (AT_ONCE_NS + (now - self._began) * SHARE) / 2


@lru_cache(maxsize=_PLACES)
def described(dtype: Any, shape: tuple[int, ...]) -> str:
    """The type of an array, made once: "f32[8,128]"."""
    return array_text(str(dtype), shape)


def _where(array: Any) -> int:
    """The address of its memory."""
    return int(array.__array_interface__["data"][0])


def _mark(array: Any) -> int:
    """A digest of the content of an array, or of a sample of it where it is larger."""
    if array.nbytes <= WHOLE:
        return hash(array.tobytes())
    flags = array.flags
    if flags.c_contiguous or flags.f_contiguous:
        blocks = array.nbytes // _BLOCK
        content = _bytes(array)[: blocks * _BLOCK].reshape(blocks, _BLOCK)
        return hash(content[_chosen(blocks)].tobytes())
    return hash(array.flat[_chosen(array.size)].tobytes())


def _digest(array: Any) -> int:
    flags = array.flags
    return crc32(_bytes(array) if flags.c_contiguous or flags.f_contiguous else array.tobytes())


def _bytes(array: Any) -> Any:
    """The memory of an array without holes, as a view."""
    in_order = array if array.flags.c_contiguous else array.T
    return in_order.reshape(-1).view(sys.modules["numpy"].uint8)


@lru_cache(maxsize=256)
def _chosen(count: int) -> Any:
    """The numbers of the blocks of a sample, spread so that no row or column of an array is always left out."""
    numpy = sys.modules["numpy"]
    spread = (numpy.arange(_BLOCKS, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)) >> numpy.uint64(16)
    chosen = (spread % numpy.uint64(count)).astype(numpy.int64)
    chosen[-1] = count - 1
    return chosen
