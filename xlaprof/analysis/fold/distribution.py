"""Lengths of time, summarised in bounded memory: exact counts, totals and extremes, close percentiles."""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import accumulate
from math import exp, log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xlaprof.analysis.timeline.columns.intervals import Column

_EXACT = 4096  # values kept as they are; beyond, they are counted in buckets
_WIDTH = log(1.01)  # of a bucket: percentiles are within 0.5 % of the truth
_DAY = 86_400_000_000_000  # ns
_BUCKET = 12  # memory of a bucket, in values
_BUDGET = 1 << 20  # memory of all distributions of a run, in values
_SCARCE = 64  # values that each may hold however many distributions there are


class Distribution:
    """Nanoseconds added one at a time. Count, total, least and most are always exact.

    Percentiles are exact up to 4,096 values; a longer series is counted in logarithmic buckets of 1 % width. Two
    distributions add up to the distribution of both. Where many of them would fill the memory, :func:`economise` widens
    the buckets of the largest.
    """

    __slots__ = ("_buckets", "_count", "_grain", "_least", "_most", "_total", "_values", "add_word")

    def __init__(self) -> None:
        self._values = array("q")
        #: Like :meth:`append`, without its call.
        self.add_word = self._values.append
        self._buckets: Counter[int] = Counter()
        self._grain = 0  # a bucket is 2 ** grain narrow ones
        # of the values in buckets
        self._count = self._total = self._least = self._most = 0

    def add(self, value: int) -> None:
        self.append(value)
        self.compact()

    def append(self, value: int) -> None:
        """Like :meth:`add`, without bounding the memory: :func:`economise` does."""
        self.add_word(value)

    def append_words(self, words: bytes) -> None:
        """Like :meth:`append` for many machine words."""
        self._values.frombytes(words)

    def add_many(self, count: int, total: int, most: int) -> None:
        """Add ``count`` values of which only the sum and the largest are known: each counts as the mean."""
        if count <= 0:
            return
        mean = total // count
        self._count_in(count, total, mean, max(mean, most))
        self._buckets[_bucket(mean) >> self._grain] += count

    def add_means(self, counts: Column, totals: Column, mosts: Column) -> None:
        """Like :meth:`add_many` for each row; lengths of less than a day."""
        from xlaprof.analysis.timeline.columns.intervals import weights

        some = counts > 0
        if not some.any():
            return
        count, total, most = counts[some], totals[some], mosts[some]
        mean = total // count
        self._count_in(int(count.sum()), int(total.sum()), int(mean.min()), max(int(mean.max()), int(most.max())))
        self._buckets.update(weights(mean, count, _edge_column(), self._grain))

    @property
    def count(self) -> int:
        return self._count + len(self._values)

    @property
    def total(self) -> int:
        return self._total + sum(self._values)

    @property
    def most(self) -> int:
        most = max(self._values, default=self._most)
        return max(most, self._most) if self._count else most

    @property
    def least(self) -> int:
        least = min(self._values, default=self._least)
        return min(least, self._least) if self._count else least

    @property
    def size(self) -> int:
        """Its memory, in values."""
        return len(self._values) + _BUCKET * len(self._buckets)

    def merge(self, other: Distribution) -> None:
        self._widen(other._grain)
        if other._count:
            self._count_in(other._count, other._total, other._least, other._most)
            self._buckets.update(_wide(other._buckets, self._grain - other._grain))
        self._values.extend(other._values)
        self.compact()

    def copy(self) -> Distribution:
        twin = Distribution()
        twin.merge(self)
        return twin

    def percentile(self, share: float) -> float:
        """The value below which ``share`` (0..1) of all values lie, in nanoseconds; 0.0 when there are none."""
        if not self.count:
            return 0.0
        rank = share * (self.count - 1)
        counts = self._counted()
        if not counts:
            ordered = sorted(self._values)
            low = int(rank)
            high = min(low + 1, len(ordered) - 1)
            return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)
        seen = 0
        for bucket in sorted(counts):
            seen += counts[bucket]
            if seen > rank:
                return min(max(self._middle(bucket), self.least), self.most)
        return float(self.most)

    def sample(self, most: int) -> list[float]:
        """At most ``most`` values distributed like all of them, ascending: all, or evenly spaced percentiles."""
        count = self.count
        counts = self._counted()
        if not counts:
            ordered = sorted(self._values)
            if count <= most:
                return [float(value) for value in ordered]
            return [float(ordered[(2 * i + 1) * count // (2 * most)]) for i in range(most)]
        drawn: list[float] = []
        seen = 0
        size = min(most, count)
        for bucket in sorted(counts):
            seen += counts[bucket]
            while len(drawn) < size and (2 * len(drawn) + 1) * count < 2 * size * seen:
                drawn.append(min(max(self._middle(bucket), self.least), self.most))
        return drawn

    def shrink(self, size: int) -> None:
        """Shrink to ``size``, in values, if possible: lengths of 0 or less keep a bucket of their own."""
        if self.size > size and self._values:
            self._spill()
        while self.size > size and len(self._buckets) > 2:
            self._widen(self._grain + 1)

    def _counted(self) -> Counter[int]:
        """The number of values in each bucket; empty if the values are known exactly."""
        self.compact()
        return self._buckets + Counter(self._in_buckets()) if self._buckets else self._buckets

    def _in_buckets(self) -> dict[int, int]:
        """The number of exactly kept values in each bucket, ascending."""
        grain = self._grain
        if len(self._values) > _EXACT and "numpy" in sys.modules and max(self._values) < _DAY:  # not worth importing it
            from xlaprof.analysis.timeline.columns.intervals import counts

            return counts(self._values, _edge_column(), grain)
        return dict(sorted(Counter([_bucket(value) >> grain for value in self._values]).items()))

    def compact(self) -> None:
        """Count the values in buckets if they are too many to keep."""
        if len(self._values) > _EXACT:
            self._spill()

    def _spill(self) -> None:
        values = self._values
        self._count_in(len(values), sum(values), min(values), max(values))
        self._buckets.update(self._in_buckets())
        del values[:]

    def _widen(self, grain: int) -> None:
        if grain > self._grain:
            self._buckets = _wide(self._buckets, grain - self._grain)
            self._grain = grain

    def _middle(self, bucket: int) -> float:
        return exp((bucket + 0.5) * _WIDTH * (1 << self._grain)) if bucket >= 0 else 0.0

    def _count_in(self, count: int, total: int, least: int, most: int) -> None:
        self._least = min(self._least, least) if self._count else least
        self._most = max(self._most, most) if self._count else most
        self._count += count
        self._total += total


def economise(distributions: Iterable[Distribution]) -> None:
    """Keep many distributions within one budget: the largest shrink, all to the same size."""
    sizes = []
    ours = list(distributions)
    for one in ours:
        one.compact()
        sizes.append(one.size)
    if sum(sizes) <= _BUDGET:
        return
    sizes.sort()
    allowed = _BUDGET * 3 // 4  # leaves room to grow
    before = [0, *accumulate(sizes)]
    # the highest level at which all of them fit: those below it stay as they are, the others shrink to it
    level = max((allowed - before[n]) // (len(sizes) - n) for n in range(len(sizes)))
    for one in ours:
        one.shrink(max(level, _SCARCE))


def _wide(buckets: Mapping[int, int], by: int) -> Counter[int]:
    """The same with ``2 ** by`` buckets as one."""
    wide: Counter[int] = Counter()
    for bucket, count in buckets.items():
        wide[bucket >> by] += count
    return wide


def _bucket(value: int) -> int:
    return int(log(value) / _WIDTH) if value > 0 else -1


@cache
def _edges() -> list[int]:
    """The least value of each bucket, up to a day."""
    edges = []
    for bucket in range(_bucket(_DAY) + 1):
        value = int(exp(bucket * _WIDTH))  # nearly
        while _bucket(value) >= bucket:
            value -= 1
        while _bucket(value) < bucket:
            value += 1
        edges.append(value)
    return edges


@cache
def _edge_column() -> Column:
    import numpy as np

    return np.array(_edges())
