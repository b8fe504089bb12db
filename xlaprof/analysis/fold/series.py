"""Numbers in order of time, thinned evenly to a bounded count; and whether they rise, beyond doubt."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

import msgspec

from xlaprof.analysis.sums import median

_MOST = 512
_WARM_UP = 0.2  # share at the beginning that is left out
_BLOCKS = 16
_LEAST = 3  # values in a block
_FEWEST = 7  # exact numbers
_RISING = 0.85  # share of neighbours of which the second has to be higher: 13 of 15

_T = TypeVar("_T")


class Series(msgspec.Struct, Generic[_T]):
    """Every value while they are few, then every second, every fourth..."""

    values: list[_T] = msgspec.field(default_factory=list)
    seen: int = 0
    stride: int = 1

    def add(self, value: _T) -> None:
        """Constant cost, on average."""
        if not self.seen % self.stride:
            self.values.append(value)
            if len(self.values) >= _MOST:
                del self.values[1::2]
                self.stride *= 2
        self.seen += 1

    def add_all(self, values: Sequence[_T]) -> None:
        """Like :meth:`add` for each of ``values``; those that are not kept cost nothing."""
        begin = self.seen
        while (kept := -(-self.seen // self.stride) * self.stride - begin) < len(values):
            self.seen = begin + kept
            self.add(values[kept])
        self.seen = begin + len(values)

    def merge(self, other: Series[_T]) -> None:
        """Keep the longer of two recordings: they do not follow each other."""
        if other.seen > self.seen:
            self.values, self.seen, self.stride = list(other.values), other.seen, other.stride


class Rise(NamedTuple):
    """Values that rise steadily: medians of the first and of the last sixteenth, warm-up left out."""

    first: float
    last: float


def climb(points: Sequence[tuple[float, float]]) -> Rise | None:
    """The rise of exact numbers, each with its step, that go up evenly all the time; ``None`` if not, or too few.

    A few jumps are no climb: half of the numbers have to rise at half of the mean rate at least.
    """
    points = points[int(len(points) * _WARM_UP) :]
    if len(points) < _FEWEST or points[-1][0] <= points[0][0] or points[-1][1] <= points[0][1]:
        return None
    (start, first), (end, last) = points[0], points[-1]
    rates = [(b - a) / (at - since) for (since, a), (at, b) in pairwise(points) if at > since]
    if not rates or sum(rate > 0 for rate in rates) < _RISING * len(rates):
        return None
    return Rise(first, last) if median(rates) >= (last - first) / (end - start) / 2 else None


def rise(values: Sequence[float]) -> Rise | None:
    """The rise of noisy ``values`` that rise all the time; ``None`` for noise, for a jump, and where they are too few.

    Medians of sixteen blocks have to go up nearly every time: by chance that happens once in 270 runs, and callers
    demand an amount, too. A jump, as when another program starts, raises only one or two of the medians.
    """
    values = values[int(len(values) * _WARM_UP) :]
    if len(values) < _BLOCKS * _LEAST:
        return None
    size = len(values) / _BLOCKS
    blocks = [median(values[int(i * size) : int((i + 1) * size)]) for i in range(_BLOCKS)]
    if sum(after > before for before, after in pairwise(blocks)) < _RISING * (_BLOCKS - 1):
        return None
    whole = blocks[-1] - blocks[0]
    if max(after - before for before, after in pairwise(blocks)) > whole / 2:
        return None
    return Rise(blocks[0], blocks[-1])
