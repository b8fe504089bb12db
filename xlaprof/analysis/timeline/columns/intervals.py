"""Intervals as columns of integers, with numpy.

All arithmetic is exact: whole nanoseconds in machine words, never a float.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xlaprof.columns.numbers import Column as Column
from xlaprof.columns.numbers import Flags as Flags

_FEW = 65_535  # numbers up to this are sorted by counting
MOST = 1 << 46  # numbers below it are summed up: many thousands of them fit a machine word
FAR = 1 << 61  # ns: differences and sums of smaller times fit a machine word


class NotVectorizable(Exception):
    """These events cannot be counted in columns, and none of them was. ``at``: the first such event, if known."""

    def __init__(self, at: int | None = None) -> None:
        super().__init__(at)
        self.at = at


def require(condition: bool) -> None:
    """Raise :class:`NotVectorizable` unless ``condition`` holds."""
    if not condition:
        raise NotVectorizable


class Cuts(NamedTuple):
    """Where outer intervals overlap inner ones: the numbers of both, start and end. Ordered by outer, then inner."""

    outer: Column
    inner: Column
    start: Column
    end: Column

    @property
    def ns(self) -> Column:
        return self.end - self.start

    def where(self, which: NDArray[Any]) -> Cuts:
        """The cuts with these numbers, or those for which it is true."""
        return Cuts(self.outer[which], self.inner[which], self.start[which], self.end[which])


def table(rows: Sequence[tuple[int, ...]], width: int) -> Column:
    """The columns of ``rows``."""
    numbers: Column = np.fromiter(chain.from_iterable(rows), np.int64, width * len(rows))
    columns: Column = numbers.reshape(-1, width).T.copy()
    return columns


def rows(*columns: Column) -> list[Any]:
    """The rows of columns: the inverse of :func:`table`."""
    return list(zip(*(column.tolist() for column in columns), strict=True))


def column(numbers: Iterable[int]) -> Column:
    return np.fromiter(numbers, np.int64)


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
    """The parts of sorted and disjoint intervals outside their ``cuts``; ``inner`` means nothing."""
    whole, nth = np.arange(len(start)), np.arange(len(cuts.outer))
    # blank time lasts from the begin of an interval, or the end of a cut, to the next cut, or the end of the interval
    outer, since, until = (np.empty(len(start) + len(nth), np.int64) for _ in range(3))
    bounds = edges(cuts.outer, len(start))
    first = whole + bounds[:-1]
    outer[first], since[first] = whole, start
    outer[nth + cuts.outer + 1], since[nth + cuts.outer + 1] = cuts.outer, cuts.end
    until[nth + cuts.outer] = cuts.start
    until[whole + bounds[1:]] = end
    return Cuts(outer, outer, since, until).where(until > since)


def unique(numbers: Column) -> tuple[Column, Column]:
    """The unique numbers, ascending, and the position among them of each number."""
    if not len(numbers) or numbers.min() < 0 or numbers.max() > _FEW:
        kinds, nth = np.unique(numbers, return_inverse=True)
        return kinds, nth.reshape(-1)
    there = np.zeros(int(numbers.max()) + 1, bool)
    there[numbers] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[numbers]


def grouped(numbers: Column) -> Iterator[tuple[int, Column]]:
    """The unique numbers in the order in which they come first, and the positions of each."""
    if not len(numbers):
        return
    if (numbers == numbers[0]).all():
        yield int(numbers[0]), np.arange(len(numbers))
        return
    kinds, nth = unique(numbers)
    where = np.split(np.argsort(nth, kind="stable"), np.cumsum(np.bincount(nth))[:-1])
    for n in sorted(range(len(kinds)), key=lambda n: int(where[n][0])):
        yield int(kinds[n]), where[n]


def up_to(first: int, numbers: Column) -> Column:
    """The highest so far: ``first``, and after each of ``numbers``."""
    return np.maximum.accumulate(np.concatenate((np.full(1, first), numbers)))


def counts(values: Iterable[int], edges: Column, grain: int) -> dict[int, int]:
    """The number of values by the edge before them (-1: none), ``1 << grain`` edges as one; ascending."""
    nth = (np.searchsorted(edges, np.fromiter(values, np.int64), "right") - 1) >> grain
    count = np.bincount(nth + 1)
    kinds = np.flatnonzero(count)
    return dict(zip((kinds - 1).tolist(), count[kinds].tolist(), strict=True))


def weights(values: Column, each: Column, edges: Column, grain: int) -> dict[int, int]:
    """Like :func:`counts` where each value counts ``each`` times; edges in the order in which they come first."""
    nth = (np.searchsorted(edges, values, "right") - 1) >> grain
    least = int(nth.min(initial=0))
    total, first = np.zeros((2, int(nth.max(initial=0)) - least + 1), np.int64)
    np.add.at(total, nth - least, each)
    first[(nth - least)[::-1]] = np.arange(len(nth))[::-1]  # the last that is written is the first of all
    kinds = np.flatnonzero(total)
    kinds = kinds[np.argsort(first[kinds])]
    return dict(zip((kinds + least).tolist(), total[kinds].tolist(), strict=True))


def marked(numbers: Column, count: int) -> Column:
    """The unique numbers, ascending; all are below ``count``."""
    there = np.zeros(count, np.bool_)
    there[numbers] = True
    return np.flatnonzero(there)


def sums(numbers: Column, groups: Column, count: int) -> Column:
    """The sum of each of ``count`` groups; ``groups``: the group of each number, ascending."""
    total: Column = np.concatenate((np.zeros(1, np.int64), np.cumsum(numbers)))
    found: Column = np.diff(total[edges(groups, count)])
    return found


def added_up(shape: tuple[int, int], row: Column, column: Column, numbers: Column) -> Column:
    """A table of the sums of numbers by row and column."""
    table: Column = np.zeros(shape[0] * shape[1], np.int64)
    np.add.at(table, row * shape[1] + column, numbers)  # several times as fast as with two indices
    return table.reshape(shape)


def in_cells(start: Column, ns: Column, grain: int) -> list[tuple[int, int, int]]:
    """What begins in each cell of ``grain``: the cell's number, the sum of ns (each below :data:`MOST`), how many."""
    cell = start // grain
    order = np.argsort(cell, kind="stable")
    cell = cell[order]
    first = np.flatnonzero(np.diff(cell, prepend=-1))
    return rows(cell[first], np.add.reduceat(ns[order], first), np.diff(first, append=len(cell)))


def edges(groups: Column, count: int) -> Column:
    """Where each of ``count`` groups begins, and the last one ends."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(groups, minlength=count))))
