"""What the page is made of, read from a recording: its analysis, what is drawn of it, when each finding happened."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from xlaprof.analysis.model import Report
from xlaprof.analysis.occurrences import Occurrences, StepTimes, occurrences
from xlaprof.analysis.run import KeptRun
from xlaprof.analysis.timeline.kept import KeptWindow
from xlaprof.analysis.views.lanes import Lanes, feed_both
from xlaprof.collection import no_collection
from xlaprof.events import AnyEvent
from xlaprof.log import Recording

from .close_ups import CloseUp, choose, draw

_SHORT = 4_000_000  # bytes of a recording whose events are kept, and not read once more for each finding
_TOLD = 8  # findings of a long recording of which it is told when they happened

#: opens the recording, for one reading, which may be shown; its argument says what for
Open = Callable[[str], tuple[Recording, Recording]]


class Gathered(NamedTuple):
    """All that the page shows."""

    run: KeptRun
    report: Report
    window: KeptWindow  # settled
    lanes: Lanes
    happened: tuple[Occurrences, ...]  # of the first findings
    others: bool  # the log goes on with another recording, which is not drawn
    since_step: int | None
    close_ups: tuple[CloseUp, ...]  # of a long run: parts drawn in full


def gather(path: str, read: Open, since_step: int | None = None) -> Gathered:
    """Read the recording at ``path``: once; a long one once more for each of its first findings, and for close-ups."""
    reader, events = read("reading")
    short = os.path.getsize(path) <= _SHORT
    run, lanes = KeptRun(since_step, long=not short), Lanes()
    held: list[AnyEvent] = []
    with closing(reader), no_collection():
        for batch in events.batches():
            feed_both(run, lanes, batch)
            if short:
                held += batch
    lanes.spans.relieve()
    report = run.report(path, reader.notes)
    found = report.findings if short else report.findings[:_TOLD]
    happened, steps = [], StepTimes()
    for number, finding in enumerate(found, 1):
        if short:
            happened.append(occurrences([held], run, finding, steps))
        else:
            reader, events = read(f"when finding {number} of {len(found)} happened")
            with closing(reader):
                happened.append(occurrences(events.batches(), run, finding, steps))
    window = run.history()
    gaps = window.idle.spans
    close_ups: list[CloseUp] = []
    if grain := max(lanes.spans.grain, gaps.grain):
        close_ups = choose(run.begin or 0, grain, happened)
        reader, events = read("for close-ups")
        with closing(reader):
            draw([held] if short else events.batches(), close_ups, lanes, gaps, since_step)
    others = run.following is not None
    return Gathered(run, report, window, lanes, tuple(happened), others, since_step, tuple(close_ups))
