"""Uploads of a batch counted at once: the totals by place in columns."""

from __future__ import annotations

import numpy as np

from xlaprof.analysis.fold.reads_and_fallbacks import PLACES
from xlaprof.analysis.fold.totals import Totals
from xlaprof.analysis.timeline.columns.intervals import Column, NotVectorizable, grouped, require, rows
from xlaprof.columns.kinds import Kind


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
        count, dur, size = (int(mine[field][those].sum()) for field in ("calls", "dur", "bytes"))
        tally.add(count, dur, size)
        tally.rhythm.at_all(turns[those].tolist())
        tally.rhythm.count += count - len(those)
    again = mine.where(mine.flags("what"))
    run.came_again.update(rows(again["stack"], again["what"]))
