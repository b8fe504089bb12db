"""What of a long recording is too short to be drawn by itself, added up at once, with numpy.

Import this file only for many events: numpy takes a tenth of a second to import, and need not be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import numpy as np

from xlaprof.analysis.fold.columns.batch import codes_of, kinds
from xlaprof.analysis.timeline.columns.intervals import MOST, Column, NotVectorizable, grouped, in_cells
from xlaprof.analysis.timeline.spans import Spans
from xlaprof.events import Execute, Scope, StepDigest, TransferToDevice

from .drawn import DEEPEST, DEVICE, DEVICES, DRAWN, LATEST, THREADS, Kind

Drawing = Spans[tuple[int, int, int], Kind]

_DEPTH, _NAME = 4, 31  # bits of both


def draw_short(spans: Drawing, uploaded: Callable[[int, int, int, int], None], events: Sequence[Any]) -> Sequence[Any]:
    """Draw the events that are shorter than a cell; returns the others.

    ``uploaded`` is told of uploads: the line, how many, ns, bytes.
    """
    try:
        columns = kinds(events, codes_of(events))
    except NotVectorizable:
        return events
    left = np.ones(len(events), np.bool_)
    for kind, drawn in DRAWN.items():
        some = columns.get(kind)
        if some is None or not some.columns:  # those are drawn one by one
            continue
        start, end = (some["start"], some["end"]) if kind is Execute else (some["t"], some.end)
        some = some.where((end - start < min(spans.grain, MOST)) & (end < LATEST))
        if not len(some):
            continue
        left[some.at] = False
        start, ns = (some["start"], some["end"] - some["start"]) if kind is Execute else (some["t"], some["dur"])
        key = np.minimum(some["device"], DEVICES) if kind is Execute else np.minimum(some["tid"], THREADS + 1)
        key = (key << _DEPTH) + (np.minimum(some["depth"], DEEPEST) if kind is Scope else 0)
        key = (key << _NAME) + (some[drawn.name] if drawn.name else 0)
        for one, those in grouped(key):
            which, name = one >> _NAME, one & (1 << _NAME) - 1
            cells = in_cells(start[those], ns[those], spans.grain)
            for row in drawn.rows:
                spans.add_sums((row, which >> _DEPTH, which & (1 << _DEPTH) - 1), Kind(drawn.part, name), cells)
        if kind is StepDigest:
            _draw_busy(spans, start, np.minimum(some["busy"], ns))
        elif kind is TransferToDevice:
            for stack, those in grouped(some["stack"]):
                uploaded(stack, len(those), int(ns[those].sum()), int(some["bytes"][those].sum()))
    return list(compress(events, left.tolist()))


def _draw_busy(spans: Drawing, start: Column, busy: Column) -> None:
    some = busy > 0
    if some.any():
        cells = in_cells(start[some], busy[some], spans.grain)
        spans.add_sums((DEVICE, 0, 0), Kind("device"), cells)
