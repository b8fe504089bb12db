"""A batch of events in columns (:mod:`xlaprof.columns`), cut into parts that may be counted at once.

Rare kinds have no columns: such an event is counted by itself, the events between two of them at once.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import pairwise

import numpy as np

from xlaprof import events as ev
from xlaprof.analysis.timeline.columns.intervals import MOST, Column, NotVectorizable, require, unique
from xlaprof.columns.kinds import CODES, Kind, Kinds

#: Fields that are summed up.
_SUMMED = frozenset({"dur", "wait", "bytes", "ops", "tracing", "enqueue", "executions", "busy", "barriers", "calls"})


def has(codes: Column, *some: type) -> bool:
    """Is an event of one of these kinds in a batch with these codes?"""
    return bool(np.isin(codes, [CODES[kind] for kind in some]).any())


def require_small(part: Kinds) -> None:
    """Raise :class:`NotVectorizable` where sums are too large for a machine word."""
    for some in part.values():
        for field in some.columns.keys() & _SUMMED if len(some) else ():
            require(bool(some[field].max() < MOST))


def require_known(known: Container[int], some: Kind, field: str) -> None:
    """Raise :class:`NotVectorizable` where one of the ids is new."""
    new = [one for one in unique(some[field])[0].tolist() if one not in known]
    if new:
        raise NotVectorizable(int(some.at[np.isin(some[field], new)][0]))


def ends_of_steps(part: Kinds) -> Kind:
    """All steps of a part, recorded in full or as digests."""
    steps, digests = part[ev.Step], part[ev.StepDigest]
    if not len(digests):
        return steps
    at = np.concatenate((steps.at, digests.at))
    order = np.argsort(at, kind="stable")
    columns = {field: np.concatenate((steps[field], digests[field]))[order] for field in ("t", "dur", "name", "num")}
    return Kind((), at[order], columns)


def stretches(codes: Column, least: int) -> Iterator[tuple[int, int, bool]]:
    """Cut a batch into parts: begin, end, and whether the part may be counted at once."""
    alone = np.flatnonzero(codes == 0).tolist()
    done = 0
    for before, after in pairwise([-1, *alone, len(codes)]):
        if after - before > least:
            if before >= done:
                yield done, before + 1, False
            yield before + 1, after, True
            done = after
    if done < len(codes):
        yield done, len(codes), False
