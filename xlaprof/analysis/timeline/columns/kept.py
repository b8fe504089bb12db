"""Steps that are kept in rows, many at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .intervals import Column


def summed(steps: Column, busy: Column, parts: Column, numbers: Column) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """For each of the ``numbers`` the fields of a :class:`~xlaprof.analysis.timeline.kept.StepRow` of its steps.

    ``steps``, ``busy``, ``parts``: as :meth:`Window.passed_at_once` has them.
    """
    order = np.lexsort((steps[0], numbers))
    numbers, busy, parts = numbers[order], busy[order], parts[order]
    start, end, num = steps[:3, order]
    begin = np.flatnonzero(np.diff(numbers, prepend=-1))
    last = np.append(begin[1:], len(numbers)) - 1
    columns = (
        start[begin],
        num[begin],
        num[last],
        last - begin + 1,
        np.add.reduceat(end - start, begin),
        np.maximum.reduceat(end - start, begin),
        np.add.reduceat(busy, begin),
        np.add.reduceat(parts, begin),
        start[last],
    )
    return zip(numbers[begin].tolist(), zip(*(column.tolist() for column in columns), strict=True), strict=True)
