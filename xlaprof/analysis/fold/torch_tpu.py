"""TorchTPU's batches in a recording: why they were cut, and for which a program was made. Nothing is concluded here."""

from __future__ import annotations

import msgspec

from xlaprof.analysis.names import Ids
from xlaprof.analysis.principles import KEPT
from xlaprof.analysis.sums import RECORDS, Tally, add_bounded, add_counts, tally_of
from xlaprof.events import TorchTpuBatch


class CutTally(Tally):
    """The batches that were cut for one reason. Nanoseconds."""

    count: int = 0
    cached: int = 0
    failed: int = 0
    dur: int = 0  # in making programs
    places: dict[int, int] = msgspec.field(default_factory=dict)  # Stack id of the last operation -> batches


class TorchTpu:
    """Of one recording. Ids are the recording's own."""

    def __init__(self) -> None:
        self.reasons: dict[str, CutTally] = {}
        self.changed: list[TorchTpuBatch] = []  # for which a program was made, though one was there for a similar one

    def on(self, event: TorchTpuBatch) -> None:
        tally = tally_of(self.reasons, event.reason, KEPT, "", CutTally)
        tally.count += 1
        tally.cached += event.cached
        tally.failed += event.failed
        tally.dur += 0 if event.cached else event.dur
        add_bounded(tally.places, event.stack, 1, RECORDS)
        if event.new and len(self.changed) < RECORDS:
            self.changed.append(event)

    def merge(self, other: TorchTpu, ids: Ids) -> None:
        """Add another recording's, which stays as it is, its ids mapped to ours."""
        for reason, theirs in other.reasons.items():
            mine = tally_of(self.reasons, reason, KEPT, "", CutTally)
            places = dict(mine.places)
            add_counts(places, {ids.stack(place): count for place, count in theirs.places.items()})
            mine.merge(theirs)
            mine.places = places
        self.changed += (ids.mapped(one, ("stack", "line"), ("name",)) for one in other.changed)
