"""Whether two series of lengths differ, and by how much: the difference of their medians with its confidence.

The interval of each median comes from the ranks of its values (the binomial distribution, close to the normal one); the
interval of the difference is recovered from the two (MOVER: Zou and Donner, 2008), so it may lean to one side as the
values do. It holds for any distribution, a few steps of seconds among steps of milliseconds do not disturb it, and it
is not sampled: the same logs give the same answer.

Neighbouring steps are alike (a slow minute makes many slow steps), so a series is worth less than its length: it counts
as ``n (1 - r) / (1 + r)`` independent values, r being the correlation of neighbours' ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import hypot, sqrt
from typing import NamedTuple

import msgspec

CONFIDENCE = 0.95
FEWEST = 5  # values of each, below which nothing is said

_Z = 1.959964  # of the normal distribution, for CONFIDENCE


class Shift(msgspec.Struct, frozen=True):
    """The median of the second series minus that of the first, in their unit."""

    by: float
    low: float  # lower end of the interval for CONFIDENCE
    high: float  # upper end

    @property
    def certain(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def shift(before: Sequence[float], after: Sequence[float], worth: tuple[float, float] | None = None) -> Shift | None:
    """The shift from ``before`` to ``after``; None where there are too few values.

    ``worth``: the number of independent values in each, by default its length.
    """
    if min(len(before), len(after)) < FEWEST:
        return None
    one, two = worth or (float(len(before)), float(len(after)))
    first, second = _median(sorted(before), one), _median(sorted(after), two)
    by = second.at - first.at
    return Shift(
        by=by,
        low=by - hypot(second.at - second.low, first.high - first.at),
        high=by + hypot(second.high - second.at, first.at - first.low),
    )


class _Median(NamedTuple):
    at: float
    low: float
    high: float


def _median(ordered: Sequence[float], worth: float) -> _Median:
    reach = _Z / (2 * sqrt(max(2.0, worth)))
    return _Median(_quantile(ordered, 0.5), _quantile(ordered, 0.5 - reach), _quantile(ordered, 0.5 + reach))


def _quantile(ordered: Sequence[float], share: float) -> float:
    rank = min(max(share, 0.0), 1.0) * (len(ordered) - 1)
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def independent(series: Sequence[float], count: int) -> float:
    """The number of independent values that ``count`` values are worth, judged by consecutive ones, ``series``."""
    return max(2.0, count * (1 - correlation(series)) / (1 + correlation(series))) if count else 0.0


def correlation(series: Sequence[float]) -> float:
    """The correlation of neighbours' ranks in ``series``; 0 if negative, which would make few values worth many."""
    if len(series) < 2 * FEWEST:
        return 0.0
    ranks = _ranks(series)
    mean = (len(ranks) - 1) / 2
    spread = sum((rank - mean) ** 2 for rank in ranks)
    if not spread:
        return 0.0
    return min(0.95, max(0.0, sum((a - mean) * (b - mean) for a, b in pairwise(ranks)) / spread))


def _ranks(series: Sequence[float]) -> list[float]:
    """The rank of each value; equal ones share theirs."""
    order = sorted(range(len(series)), key=series.__getitem__)
    ranks = [0.0] * len(series)
    start = 0
    while start < len(order):
        stop = start
        while stop < len(order) and series[order[stop]] == series[order[start]]:
            stop += 1
        for position in range(start, stop):
            ranks[order[position]] = (start + stop - 1) / 2
        start = stop
    return ranks
