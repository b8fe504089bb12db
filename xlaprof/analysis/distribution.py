"""Lengths of time, summarised in bounded memory: exact counts, totals and extremes, close percentiles."""

from __future__ import annotations

from array import array
from collections import Counter
from math import exp, log

_EXACT = 4096  # values kept as they are; beyond, they are counted in buckets
_WIDTH = log(1.01)  # of a bucket: percentiles are then within 0.5 % of the truth


class Distribution:
    """Nanoseconds added one at a time. Count, total, least and most are always exact.

    Percentiles are exact for the first 4,096 values; a longer series is counted in logarithmic buckets of
    1 % width. Two distributions add up to the distribution of both.
    """

    __slots__ = ("_buckets", "_count", "_least", "_most", "_total", "_values")

    def __init__(self) -> None:
        self._values = array("q")
        self._buckets: dict[int, int] = {}
        self._count = 0  # of what is in buckets, as are
        self._total = 0
        self._least = 0
        self._most = 0

    def add(self, value: int) -> None:
        values = self._values
        try:
            values.append(value)
        except OverflowError:  # no length of time: a damaged log
            self._tell(1, value, value, value)
            return
        if len(values) > _EXACT:
            self._spill()

    def add_many(self, count: int, total: int, most: int) -> None:
        """Add ``count`` values of which only the sum and the largest are known: each counts as the mean."""
        if count <= 0:
            return
        mean = total // count
        self._tell(count, total, mean, max(mean, most))
        bucket = _bucket(mean)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + count

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

    def merge(self, other: Distribution) -> None:
        if other._count:
            self._tell(other._count, other._total, other._least, other._most)
            for bucket, count in other._buckets.items():
                self._buckets[bucket] = self._buckets.get(bucket, 0) + count
        self._values.extend(other._values)
        if len(self._values) > _EXACT:
            self._spill()

    def copy(self) -> Distribution:
        twin = Distribution()
        twin.merge(self)
        return twin

    def percentile(self, share: float) -> float:
        """The value below which ``share`` (0..1) of all values lie, in nanoseconds; 0.0 when there are none."""
        if not self.count:
            return 0.0
        rank = share * (self.count - 1)
        if not self._buckets:
            ordered = sorted(self._values)
            low = int(rank)
            high = min(low + 1, len(ordered) - 1)
            return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)
        counts = dict(self._buckets)
        for value in self._values:
            bucket = _bucket(value)
            counts[bucket] = counts.get(bucket, 0) + 1
        seen = 0
        for bucket in sorted(counts):
            seen += counts[bucket]
            if seen > rank:
                return min(max(_middle(bucket), self.least), self.most)
        return float(self.most)

    def sample(self, most: int) -> list[float]:
        """At most ``most`` values that lie as all of them do, ascending: all, or evenly spaced percentiles."""
        count = self.count
        if not self._buckets:
            ordered = sorted(self._values)
            if count <= most:
                return [float(value) for value in ordered]
            return [float(ordered[(2 * i + 1) * count // (2 * most)]) for i in range(most)]
        counts = Counter(self._buckets)
        counts.update(map(_bucket, self._values))
        drawn: list[float] = []
        seen = 0
        size = min(most, count)
        for bucket in sorted(counts):
            seen += counts[bucket]
            while len(drawn) < size and (2 * len(drawn) + 1) * count < 2 * size * seen:
                drawn.append(min(max(_middle(bucket), self.least), self.most))
        return drawn

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def _spill(self) -> None:
        values, buckets = self._values, self._buckets
        self._tell(len(values), sum(values), min(values), max(values))
        for bucket, count in Counter([int(log(value) / _WIDTH) if value > 0 else -1 for value in values]).items():
            buckets[bucket] = buckets.get(bucket, 0) + count
        del values[:]

    def _tell(self, count: int, total: int, least: int, most: int) -> None:
        self._least = min(self._least, least) if self._count else least
        self._most = max(self._most, most) if self._count else most
        self._count += count
        self._total += total


def _bucket(value: int) -> int:
    return int(log(value) / _WIDTH) if value > 0 else -1


def _middle(bucket: int) -> float:
    return exp((bucket + 0.5) * _WIDTH) if bucket >= 0 else 0.0
