"""What the host did, painted all at once: nested intervals turned into disjoint segments, the innermost winning.

``HostTimeline`` does it one by one; this is for logs in which every interval comes after those in it.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from .intervals import Column, blank, cut, require, up_to

_DEEPEST = 64  # levels of nesting


def paint(intervals: Column, horizon: int) -> Column:
    """Disjoint and sorted segments of intervals (rows: start, end, cause, stack) in the order of the events.

    Nothing is painted before ``horizon``. Raises :class:`NotVectorizable` where intervals overlap without nesting,
    or one comes before another that lies in it.
    """
    start = np.maximum(intervals[0], horizon)[::-1]  # where two begin together the outer one comes later
    order = len(start) - 1 - np.argsort(start, kind="stable")
    order = order[intervals[1, order] > np.maximum(intervals[0, order], horizon)]
    start, end = np.maximum(intervals[0, order], horizon), intervals[1, order]
    levels: list[Column] = []  # intervals inside no other, inside one, inside two...
    inside = np.arange(len(order))
    while len(inside):
        require(len(levels) < _DEEPEST)
        outer = start[inside] >= up_to(horizon, end[inside])[:-1]
        levels.append(inside[outer])
        inside = inside[~outer]
    painted = []
    for level, inner in pairwise([*levels, inside]):
        around = level[np.searchsorted(start[level], start[inner], "right") - 1]
        require(bool((end[inner] <= end[around]).all() and (order[inner] < order[around]).all()))
        left = blank(start[level], end[level], cut(start[level], end[level], start[inner], end[inner]))
        painted.append(np.stack((left.start, left.end, *intervals[2:, order[level[left.outer]]])))
    if not painted:
        return np.empty((4, 0), np.int64)
    segments = np.concatenate(painted, axis=1)
    found: Column = segments[:, np.argsort(segments[0], kind="stable")]
    return found
