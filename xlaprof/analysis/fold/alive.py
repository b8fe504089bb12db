"""What was alive on the device: readings of its live tensors, what retains them, and programs that were forgotten."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from xlaprof.analysis.names import Ids
from xlaprof.analysis.sums import RECORDS
from xlaprof.events import Evicted, Kept, Live

from .series import Series


class Reading(NamedTuple):
    """The tensors alive on the device at a moment."""

    step: int  # steps ended by then
    tensors: int
    bytes: int
    t: int = 0


class Alive:
    """The readings of one recording."""

    def __init__(self) -> None:
        self.readings: Series[Reading] = Series()
        self.last: Reading | None = None
        self.most: Reading | None = None  # in bytes; the first of those
        self.held: list[tuple[int, int, int]] = []  # stack of a line whose tensors stay alive, their number and bytes
        self.kept: Kept | None = None  # their retainer
        self.evicted: list[int] = []  # moments at which a program was forgotten

    def add(self, event: Live, step: int) -> None:
        """Count the tensors alive after ``step`` steps."""
        reading = self.last = Reading(step, event.tensors, event.bytes, event.t)
        self.readings.add(reading)
        if self.most is None or reading.bytes > self.most.bytes:
            self.most = reading
        if event.held:
            self.held = [(one[0], one[1], one[2]) for one in event.held]
        if event.kept is not None:
            self.kept = replace(event.kept, puts=list(dict.fromkeys(event.kept.puts)))

    def on_evicted(self, event: Evicted) -> None:
        if len(self.evicted) < RECORDS:
            self.evicted.append(event.t)

    def merge(self, other: Alive, ids: Ids) -> None:
        """Keep the longer of two recordings, and the most of both; the other's ids are mapped to ours."""
        if other.readings.seen > self.readings.seen:
            self.last = other.last
            self.held = [(ids.stack(place), count, size) for place, count, size in other.held]
            self.kept = other.kept and replace(other.kept, puts=[ids.stack(place) for place in other.kept.puts])
        self.readings.merge(other.readings)
        self.most = max(self.most, other.most, key=lambda one: one.bytes if one is not None else -1)
        self.evicted += other.evicted[: RECORDS - len(self.evicted)]
