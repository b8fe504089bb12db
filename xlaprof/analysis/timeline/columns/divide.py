"""The time of many steps divided by cause at once, for long runs, with the time a device was busy meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from xlaprof.analysis.timeline.host import OTHER, SCOPE, TRACING

from .intervals import Column, cut, pairs, sums, unique


class Divided(NamedTuple):
    """Steps of one name, summed; the first of a name by itself. Nanoseconds."""

    name: int
    first: bool
    steps: int
    total: int
    busy: int
    parts: list[int]  # by cause; all scopes are one


def divide(
    steps: Column,
    known: Mapping[int, int],
    segments: Column,
    busy: Column,
) -> Iterator[Divided]:
    """``known``: ns of a step settled already, by ordinal. The others are a window's lists, in columns."""
    start, end, _, ordinal, name, first, tracing = steps
    begins, ends, cause, _ = segments
    painted = cut(start, np.maximum(start, end), begins, ends)
    blank = end - start - sums(painted.ns, painted.outer, len(start))
    for open_before, ns in known.items():
        blank[ordinal == open_before] -= ns
    tracing = np.minimum(tracing, blank)
    # stretches of several devices overlap: only the last one that begins before a step counts
    begins, ends = busy
    after = np.searchsorted(begins, start, "right")
    past = np.maximum(np.searchsorted(begins, end, "left"), after)
    ran = pairs(start, end, begins, ends, np.maximum(after - 1, 0), past)
    ran_ns = np.maximum(ran.ns, 0)

    causes = np.minimum(cause[painted.inner], SCOPE)
    _, group = unique(2 * name + first)
    _, one = np.unique(group, return_index=True)
    for n in np.argsort(one).tolist():  # as they came
        which = group == n
        parts = np.zeros(SCOPE + 1, np.int64)
        inside = which[painted.outer]
        np.add.at(parts, causes[inside], painted.ns[inside])
        parts[TRACING] += tracing[which].sum()
        parts[OTHER] += (blank - tracing)[which].sum()
        yield Divided(
            name=int(name[one[n]]),
            first=bool(first[one[n]]),
            steps=int(which.sum()),
            total=int((end - start)[which].sum()),
            busy=int(ran_ns[which[ran.outer]].sum()),
            parts=parts.tolist(),
        )
