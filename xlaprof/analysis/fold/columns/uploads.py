"""Uploads of a batch counted at once: the totals by place in columns."""

from __future__ import annotations

import numpy as np

from xlaprof.analysis.fold.reads_and_fallbacks import PLACES
from xlaprof.analysis.fold.tallies import UploadTally
from xlaprof.analysis.fold.totals import Totals
from xlaprof.analysis.sums import add_bounded
from xlaprof.analysis.timeline.columns.intervals import Column, NotVectorizable, grouped, require
from xlaprof.columns.kinds import Kind

_DATA = 32  # bits of the id of what came again, beside that of a stack


def _mine(run: Totals, uploads: Kind) -> Kind:
    """Those of the main thread: others do not keep it from its work."""
    return uploads.where(uploads["tid"] == run.main_thread)


def _keys(uploads: Kind) -> Column:
    return 2 * uploads["stack"] + uploads["again"]


def check_uploads(run: Totals, uploads: Kind) -> None:
    """Raise :class:`NotVectorizable` for places that are new."""
    mine = _mine(run, uploads)
    require(len(run.came_again) + len(mine) < PLACES)
    new = [int(mine.at[those[0]]) for key, those in grouped(_keys(mine)) if (key >> 1, bool(key & 1)) not in run.sent]
    if new:
        raise NotVectorizable(min(new))


def add_uploads(run: Totals, uploads: Kind, ends: Kind) -> None:
    """Count the uploads of a part. ``ends``: of its steps."""
    mine = _mine(run, uploads)
    turns = run.steps_ended + np.searchsorted(ends.at, mine.at)
    for key, those in grouped(_keys(mine)):
        tally = run.sent[key >> 1, bool(key & 1)]
        count, size = (int(mine[field][those].sum()) for field in ("calls", "bytes"))
        tally.add(count, _beyond(tally, mine["t"][those], mine["dur"][those]), size)
        tally.rhythm.at_all(turns[those].tolist())
        tally.rhythm.count += count - len(those)
    again = mine.where(mine.flags("what"))
    for key, those in grouped((again["stack"] << _DATA) + again["what"]):
        add_bounded(run.came_again, (key >> _DATA, key & (1 << _DATA) - 1), int(again["bytes"][those].sum()), PLACES)


def _beyond(tally: UploadTally, starts: Column, durs: Column) -> int:
    """:meth:`UploadTally.beyond` of each, summed up."""
    ends = starts + durs
    before = np.maximum.accumulate(np.concatenate(([tally.end_most], ends)))
    tally.end_most = int(before[-1])
    return int(np.maximum(0, ends - np.maximum(starts, before[:-1])).sum())
