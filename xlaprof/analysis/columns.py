"""Intervals as columns of integers: what is done to many of them is done to all at once, with numpy.

All of it is exact: whole nanoseconds in machine words, never a float. Numpy takes a while to import and need not be
installed: import this module only where there is much to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.int64]

_FAR = 1 << 61  # ns: differences and sums of what is nearer fit a machine word


class Cuts(NamedTuple):
    """Where intervals overlap others: which of the ones, which of the others, from when to when. Ordered by both."""

    outer: Column
    inner: Column
    start: Column
    end: Column

    @property
    def ns(self) -> Column:
        return self.end - self.start

    def where(self, which: NDArray[Any]) -> Cuts:
        """Some of them: those with these numbers, or those for which it is true."""
        return Cuts(self.outer[which], self.inner[which], self.start[which], self.end[which])


def table(rows: Sequence[tuple[int, ...]], width: int) -> Column:
    """The columns of ``rows``. Raises :class:`OverflowError` where a number is no time."""
    numbers: Column = np.fromiter(chain.from_iterable(rows), np.int64, width * len(rows))
    if len(rows) and (numbers.min() <= -_FAR or numbers.max() >= _FAR):
        raise OverflowError("not nanoseconds")
    columns: Column = numbers.reshape(-1, width).T.copy()
    return columns


def column(numbers: Iterable[int]) -> Column:
    """One column; :class:`OverflowError` like :func:`table`."""
    return table([(number,) for number in numbers], 1)[0]


def cut(start: Column, end: Column, inner_start: Column, inner_end: Column) -> Cuts:
    """Where intervals overlap the inner ones, which must be sorted and disjoint."""
    first = np.searchsorted(inner_end, start, "right")
    return pairs(start, end, inner_start, inner_end, first, np.searchsorted(inner_start, end, "left"))


def pairs(start: Column, end: Column, inner_start: Column, inner_end: Column, first: Column, past: Column) -> Cuts:
    """Each interval beside the inner ones from ``first`` up to ``past``, cut at each other's edges."""
    count = np.maximum(past - first, 0)
    outer = np.repeat(np.arange(len(start)), count)
    inner = np.arange(len(outer)) + np.repeat(first - (np.cumsum(count) - count), count)
    return Cuts(outer, inner, np.maximum(start[outer], inner_start[inner]), np.minimum(end[outer], inner_end[inner]))


def blank(start: Column, end: Column, cuts: Cuts) -> Cuts:
    """What ``cuts`` leave of the sorted and disjoint intervals that they were made of; ``inner`` means nothing."""
    whole = np.arange(len(start))
    outer = np.concatenate((cuts.outer, whole))
    # something is blank from where an interval or what lies in it begins or ends to where the next does
    since, until = np.concatenate((cuts.end, start)), np.concatenate((cuts.start, end))
    since, until = since[np.lexsort((since, outer))], until[np.lexsort((until, outer))]
    outer = np.sort(outer)
    return Cuts(outer, outer, since, until).where(until > since)


def sums(numbers: Column, groups: Column, count: int) -> Column:
    """The sum of each of ``count`` groups; ``groups``: of each number its own, ascending."""
    total: Column = np.concatenate((np.zeros(1, np.int64), np.cumsum(numbers)))
    edges = np.searchsorted(groups, np.arange(count + 1))
    found: Column = np.diff(total[edges])
    return found
