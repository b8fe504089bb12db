"""JAX's programs in a recording: by function, and those that were made again. Nothing is concluded here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from xlaprof.analysis.names import Ids
from xlaprof.analysis.principles import HABIT, KEPT
from xlaprof.analysis.sums import RECORDS, Tally, add_bounded, kept
from xlaprof.analysis.timeline.rhythm import Rhythm
from xlaprof.events import (
    DeviceWait,
    HostCallbacks,
    JitCompile,
    JitProgram,
    OutsideOperations,
    RepeatedWork,
    Undonated,
)

MANY = 16  # times that a line makes the same operation in a program: it may be a loop's

JOINED = 100  # arrays that one operation joins: nobody writes as many by hand


class JitTally(Tally):
    """One jitted function of the program's, or all operations of one line outside of such. Nanoseconds."""

    name: int  # Text id; 0: operations outside
    programs: int = 0
    again: int = 0  # of which for a call that differs from earlier ones
    dur: int = 0
    trace: int = 0
    lower: int = 0
    backend: int = 0
    ops: int = 0  # operations in all of them; one at least in each
    cached: int = 0  # ns of those from the persistent cache
    unkept: dict[str, int] = msgspec.field(default_factory=dict)  # ns by why the persistent cache has no such program
    callers: set[int] = msgspec.field(default_factory=set)  # Stack ids
    contents: set[int] = msgspec.field(default_factory=set)  # of its programs, each once

    def is_other(self, event: JitCompile) -> bool:
        """Whether no program of it had the operations of this one; False where it is not known."""
        content = event.content or event.ops  # an old recording has their number alone
        other = content > 0 and bool(self.contents) and content not in self.contents
        if content and len(self.contents) < KEPT:
            self.contents.add(content)
        return other


class Needs(msgspec.Struct):
    """What the programs of a function need that one line calls."""

    largest: JitProgram
    programs: int = 0

    def add(self, program: JitProgram, programs: int) -> None:
        """``programs``: as many, this one the largest."""
        self.programs += programs
        if memory(program) > memory(self.largest):
            self.largest = program


def memory(program: JitProgram) -> int:
    """Bytes that a device needs while it runs."""
    return max(0, program.arguments + program.results + program.temporary - program.donated)


class WaitTally(Tally):
    """A line that waits for the device and reads nothing."""

    count: int = 0
    dur: int = 0  # ns
    rhythm: Rhythm = msgspec.field(default_factory=Rhythm)


class Counted(Tally):
    """A line that runs operations outside of jitted functions, or Python within a program."""

    count: int = 0
    events: int = 0
    ns: int = 0  # of the latter
    functions: set[int] = msgspec.field(default_factory=set)  # Text ids: their names


class JitRecord(msgspec.Struct):
    """A program made for a call that differs from earlier ones."""

    event: JitCompile
    step: int  # number of the step it happened in; -1 before the first
    apart: bool  # the line that calls had no program of this function before
    other: bool = False  # its operations are others than those of each program of this function before


class Jit:
    """The tallies of one recording. Ids are the recording's own."""

    def __init__(self) -> None:
        self.functions: dict[tuple[int, int], JitTally] = {}  # (stack of the definition, or of the line; name)
        self.compiled_at: dict[int, int] = {}  # stack of the line that had programs compiled -> ns
        self.again_at: dict[int, int] = {}  # the same of operations outside of jitted functions, not for the first time
        self.records: list[JitRecord] = []
        self.joins: list[JitCompile] = []  # operations of many arrays, outside of jitted functions
        self.unrolled: list[JitCompile] = []  # programs that one line made many operations of
        self.needs: dict[tuple[int, int], Needs] = {}  # (function's name, stack of the line that calls it)
        self.undonated: list[Undonated] = []
        self.repeated: dict[tuple[int, int], RepeatedWork] = {}  # of the latest program: (function's name, stack)
        self.waits: dict[int, WaitTally] = {}  # by stack of the line
        self.outside: dict[int, Counted] = {}  # by stack of the line
        self.callbacks: dict[int, Counted] = {}  # the same
        #: the method that counts an event, by its kind, where the event says all
        self.handlers: dict[type, Callable[[Any], None]] = {
            OutsideOperations: self.on_outside,
            HostCallbacks: self.on_callbacks,
            JitProgram: self.on_program,
            RepeatedWork: self.on_repeated,
            Undonated: self.on_undonated,
        }

    @property
    def callers(self) -> set[int]:
        """Stacks of the lines that call jitted functions."""
        return {stack for one in self.functions.values() if one.name for stack in one.callers}

    def on_compile(self, event: JitCompile, step: int) -> None:
        # what no call needed was asked for (``f.lower().compile()``): it is a function's, and no operation of the line
        key = (event.code or event.stack, event.func if event.code or not event.known else 0)
        tally = kept(self.functions, key, RECORDS, lambda: JitTally(key[1]))
        apart, other = event.stack not in tally.callers, tally.is_other(event)
        tally.programs += 1
        tally.dur += event.dur
        tally.trace += event.trace
        tally.lower += event.lower
        tally.backend += event.backend
        tally.ops += max(1, event.ops)
        tally.cached += event.dur * event.cached
        if event.unkept:
            add_bounded(tally.unkept, event.unkept, event.backend, KEPT)
        tally.callers.add(event.stack)
        add_bounded(self.compiled_at, event.stack, event.dur, RECORDS)
        if event.versions and not key[1]:
            add_bounded(self.again_at, event.stack, event.dur, RECORDS)
        if event.arrays >= JOINED and not event.code and len(self.joins) < RECORDS:
            self.joins.append(event)
        if event.turns >= HABIT and len(self.unrolled) < RECORDS:
            self.unrolled.append(event)
        if event.versions and event.changes:
            tally.again += event.code > 0
            if len(self.records) < RECORDS:
                self.records.append(JitRecord(event, step, apart, other))

    def on_program(self, event: JitProgram) -> None:
        self._add_needs(event, 1)

    def _add_needs(self, program: JitProgram, programs: int) -> None:
        kept(self.needs, (program.func, program.stack), RECORDS, lambda: Needs(program)).add(program, programs)

    def on_undonated(self, event: Undonated) -> None:
        if len(self.undonated) < RECORDS:
            self.undonated.append(event)

    def on_repeated(self, event: RepeatedWork) -> None:
        if len(self.repeated) < RECORDS:
            self.repeated[event.func, event.stack] = event

    def on_wait(self, event: DeviceWait, step: int) -> None:
        tally = kept(self.waits, event.stack, RECORDS, WaitTally)
        tally.count += 1
        tally.dur += event.dur
        tally.rhythm.at(step)

    def on_outside(self, event: OutsideOperations) -> None:
        tally = kept(self.outside, event.stack, RECORDS, Counted)
        tally.count += event.calls
        tally.events += 1
        tally.functions |= {event.func}

    def on_callbacks(self, event: HostCallbacks) -> None:
        tally = kept(self.callbacks, event.stack, RECORDS, Counted)
        tally.count += event.calls
        tally.events += 1
        tally.ns += event.ns
        tally.functions |= {event.func}

    def merge(self, other: Jit, ids: Ids, shift: int) -> None:
        """Add another recording's, which stays as it is, its ids mapped to ours.

        ``shift``: what its programs' numbers are counted on from.
        """
        for (name, place), need in other.needs.items():
            largest = replace(
                need.largest,
                func=ids.text(name),
                stack=ids.stack(place),
                program=need.largest.program + shift,
                collectives=[replace(one, stack=ids.stack(one.stack)) for one in need.largest.collectives],
            )
            self._add_needs(largest, need.programs)
        for undonated in other.undonated[: RECORDS - len(self.undonated)]:
            self.undonated.append(ids.mapped(undonated, ("stack",), ("func",)))
        for repeated in other.repeated.values():
            self.on_repeated(ids.mapped(repeated, ("stack", "line"), ("func",)))
        for (place, name), theirs in other.functions.items():
            name = ids.text(name)
            mine = self.functions.setdefault((ids.stack(place), name), JitTally(name))
            mine.merge(replace(theirs, callers=set(map(ids.stack, theirs.callers))))
        for ours_at, theirs_at in ((self.compiled_at, other.compiled_at), (self.again_at, other.again_at)):
            for place, ns in theirs_at.items():
                add_bounded(ours_at, ids.stack(place), ns, RECORDS)
        for record in other.records:
            self.records.append(
                replace(record, event=ids.mapped(record.event, ("stack", "code", "cleared"), ("func",)))
            )
        for event in other.joins[: RECORDS - len(self.joins)]:
            self.joins.append(ids.mapped(event, ("stack", "code", "loop"), ("func",)))
        for event in other.unrolled[: RECORDS - len(self.unrolled)]:
            self.unrolled.append(ids.mapped(event, ("stack", "code", "loop"), ("func",)))
        for stack, waits in other.waits.items():
            kept(self.waits, ids.stack(stack), RECORDS, WaitTally).merge(waits)
        for ours, lines in ((self.outside, other.outside), (self.callbacks, other.callbacks)):
            for stack, ran in lines.items():
                named = replace(ran, functions=set(map(ids.text, ran.functions)))
                kept(ours, ids.stack(stack), RECORDS, Counted).merge(named)
