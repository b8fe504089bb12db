"""The time of many steps divided by cause at once, for long runs, with the time a device was busy meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from xlaprof.analysis.timeline.host import OTHER, SCOPE, TRACING
from xlaprof.analysis.timeline.window import CAUSES, Split

from .intervals import Column, added_up, cut, pairs, sums


def divide(steps: Column, carried: Mapping[int, Split], segments: Column, busy: Column) -> tuple[Column, Column]:
    """ns that the device was busy in each step, and a row for each step with its ns by cause; all scopes are one.

    ``carried``: what of a step is settled already, by ordinal. The others are a window's lists, in columns.
    """
    start, end, _, ordinal, _, _, tracing = steps
    begins, ends, cause, _ = segments
    painted = cut(start, np.maximum(start, end), begins, ends)
    parts = added_up((len(start), CAUSES), painted.outer, np.minimum(cause[painted.inner], SCOPE), painted.ns)
    # stretches of several devices overlap: only the last one that begins before a step counts
    begins, ends = busy
    after = np.searchsorted(begins, start, "right")
    past = np.maximum(np.searchsorted(begins, end, "left"), after)
    ran = pairs(start, end, begins, ends, np.maximum(after - 1, 0), past)
    ran_ns = sums(np.maximum(ran.ns, 0), ran.outer, len(start))
    for one, split in carried.items():
        parts[ordinal == one] += np.array(split.parts)
        ran_ns[ordinal == one] += split.busy
    blank = end - start - parts.sum(axis=1)
    tracing = np.minimum(tracing, blank)
    parts[:, TRACING] += tracing
    parts[:, OTHER] += blank - tracing
    return ran_ns, parts
