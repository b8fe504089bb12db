"""JAX's programs in a recording: by function, and those that were made again. Nothing is concluded here."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from xlaprof.analysis.names import Ids
from xlaprof.analysis.sums import Tally, kept
from xlaprof.events import JitCompile

_RECORDS = 10_000


class JitTally(Tally):
    """One jitted function of the program's, or all operations of one line outside of such. Nanoseconds."""

    name: int  # Text id; 0: operations outside
    programs: int = 0
    again: int = 0  # of which for a call that differs from earlier ones
    dur: int = 0
    trace: int = 0
    lower: int = 0
    backend: int = 0
    cached: int = 0  # ns of those from the persistent cache
    callers: set[int] = msgspec.field(default_factory=set)  # Stack ids


class JitRecord(msgspec.Struct):
    """A program made for a call that differs from earlier ones."""

    event: JitCompile
    step: int  # number of the step it happened in; -1 before the first
    apart: bool  # the line that calls had no program of this function before


class Jit:
    """The tallies of one recording. Ids are the recording's own."""

    def __init__(self) -> None:
        self.functions: dict[tuple[int, int], JitTally] = {}  # (stack of the definition, or of the line; name)
        self.records: list[JitRecord] = []

    def on_compile(self, event: JitCompile, step: int) -> None:
        key = (event.code, event.func) if event.code else (event.stack, 0)
        tally = kept(self.functions, key, _RECORDS, lambda: JitTally(key[1]))
        apart = event.stack not in tally.callers
        tally.programs += 1
        tally.dur += event.dur
        tally.trace += event.trace
        tally.lower += event.lower
        tally.backend += event.backend
        tally.cached += event.dur * event.cached
        tally.callers.add(event.stack)
        if event.versions and event.changes:
            tally.again += 1
            if len(self.records) < _RECORDS:
                self.records.append(JitRecord(event, step, apart))

    def merge(self, other: Jit, ids: Ids) -> None:
        """Add another recording's, which stays as it is, its ids mapped to ours."""
        for (place, name), theirs in other.functions.items():
            name = ids.text(name)
            mine = self.functions.setdefault((ids.stack(place), name), JitTally(name))
            mine.merge(replace(theirs, callers=set(map(ids.stack, theirs.callers))))
        for record in other.records:
            self.records.append(replace(record, event=ids.mapped(record.event, ("stack", "code"), ("func",))))
