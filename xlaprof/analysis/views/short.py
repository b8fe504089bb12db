"""What of a long recording is too short to be drawn by itself, added up at once, with numpy.

Import this file only for many events: numpy takes a tenth of a second to import, and need not be installed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from xlaprof.analysis.timeline.columns.intervals import MOST, Column, grouped, in_cells
from xlaprof.analysis.timeline.spans import Spans
from xlaprof.columns.kinds import CODES, Columns
from xlaprof.events import Execute, Scope, StepDigest, Thread, TransferToDevice

from .drawn import DEEPEST, DEVICE, DEVICES, DRAWN, LATEST, THREADS, Kind

Drawing = Spans[tuple[int, int, int], Kind]

_DEPTH, _NAME = 4, 31  # bits of both
_MAY_BE_DRAWN = [0, *(CODES[kind] for kind in (*DRAWN, Thread) if kind in CODES)]


def draw_short(
    spans: Drawing, uploaded: Callable[[int, int, int, int], None], columns: Columns, first: int, past: int
) -> list[int]:
    """Draw those events of a part of a batch that are shorter than a cell; returns the positions of the others.

    ``uploaded`` is told of uploads: the line, how many, ns, bytes.
    """
    left = np.isin(columns.codes[first:past], _MAY_BE_DRAWN)
    for kind, drawn in DRAWN.items():
        whole = columns.kinds.get(kind)
        if whole is None or not whole.columns:  # those are drawn one by one
            continue
        some = whole.between(first, past)
        start, end = (some["start"], some["end"]) if kind is Execute else (some["t"], some.end)
        short = (end - start < min(spans.grain, MOST)) & (end < LATEST)
        if kind is TransferToDevice:
            short &= some["bytes"] < MOST
        some = some.where(short)
        if not len(some):
            continue
        left[some.at - first] = False
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
    return (first + np.flatnonzero(left)).tolist()


def _draw_busy(spans: Drawing, start: Column, busy: Column) -> None:
    some = busy > 0
    if some.any():
        cells = in_cells(start[some], busy[some], spans.grain)
        spans.add_sums((DEVICE, 0, 0), Kind("device"), cells)
