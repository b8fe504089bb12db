"""Lengths of time, summarised in bounded memory: exact counts, totals and extremes, close percentiles."""

from __future__ import annotations

from math import exp, log

_EXACT = 4096  # values kept as they are; beyond, they are counted in buckets
_WIDTH = log(1.01)  # of a bucket: percentiles are then within 0.5 % of the truth


class Distribution:
    """Nanoseconds added one at a time. Count, total, least and most are always exact.

    Percentiles are exact for the first 4,096 values; a longer series is counted in logarithmic buckets of
    1 % width. Two distributions add up to the distribution of both.
    """

    __slots__ = ("_buckets", "_values", "count", "least", "most", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.least = 0
        self.most = 0
        self._values: list[int] = []
        self._buckets: dict[int, int] = {}

    def add(self, value: int) -> None:
        if value > self.most or not self.count:
            self.most = value
        if value < self.least or not self.count:
            self.least = value
        self.count += 1
        self.total += value
        values = self._values
        values.append(value)
        if len(values) > _EXACT:
            self._spill()

    def add_many(self, count: int, total: int, most: int) -> None:
        """Add ``count`` values of which only the sum and the largest are known: each counts as the mean."""
        if count <= 0:
            return
        mean = total // count
        self.most = max(self.most, most)
        self.least = mean if not self.count else min(self.least, mean)
        self.count += count
        self.total += total
        self._spill()
        bucket = _bucket(mean)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + count

    def merge(self, other: Distribution) -> None:
        if not other.count:
            return
        self.least = other.least if not self.count else min(self.least, other.least)
        self.most = max(self.most, other.most)
        self.count += other.count
        self.total += other.total
        self._values.extend(other._values)
        for bucket, count in other._buckets.items():
            self._buckets[bucket] = self._buckets.get(bucket, 0) + count
        if self._buckets or len(self._values) > _EXACT:
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

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def _spill(self) -> None:
        for value in self._values:
            bucket = _bucket(value)
            self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self._values.clear()


def _bucket(value: int) -> int:
    return int(log(value) / _WIDTH) if value > 0 else -1


def _middle(bucket: int) -> float:
    return exp((bucket + 0.5) * _WIDTH) if bucket >= 0 else 0.0
