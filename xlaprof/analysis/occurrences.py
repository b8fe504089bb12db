"""When a finding happened: the events behind it, found again in the log with the names that its analysis resolved.

The analysis adds up and forgets; whoever asks for one finding in depth reads the log a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.places import culprit
from xlaprof.analysis.run import Run
from xlaprof.events import (
    AnyEvent,
    Barrier,
    Compile,
    DataWait,
    Fallback,
    Gc,
    GraphBreak,
    Hole,
    Scope,
    Step,
    StepDigest,
    TransferFromDevice,
)

MOST = 1_000  # told one by one; beyond they are only counted
PARTS = 60  # of the run, into which all are counted


class Occurrence(msgspec.Struct, frozen=True):
    """One time that it happened, or several of one step of which no more is known."""

    at_s: float  # since the beginning of the recording
    dur_s: float
    step: int | None  # None: in no named step, as far as is known
    count: int = 1
    told: str = ""  # what changed: "f32[8,4] -> f32[5,4]"


class Occurrences(msgspec.Struct, frozen=True):
    """All of them. ``parts``: how many in each part of the recording, from its beginning to its end."""

    total: int
    first: tuple[Occurrence, ...]  # the first MOST
    parts: tuple[int, ...]
    wall_s: float


def occurrences(events: Iterable[AnyEvent], run: Run, finding: Finding) -> Occurrences:
    """The times that ``finding`` happened in the recording of which ``run`` is the analysis."""
    search = _Search(run, finding)
    for event in events:
        search.feed(event)
    return search.found()


class _Search:
    def __init__(self, run: Run, finding: Finding) -> None:
        self._run = run
        self._names = run.names
        self._begin = run.begin or 0
        self._wall = max(1, run.last - self._begin)
        self._finding = finding
        self._first: list[Occurrence] = []
        self._parts = [0] * PARTS
        self._total = 0
        self._since_step: list[int] = []  # positions in _first of those that no step has claimed
        self._moments: list[int] = []
        self._here: dict[int, bool] = {}  # stack -> it is the finding's line
        self._meets = _MEETS.get(finding.kind)

    def feed(self, event: AnyEvent) -> None:
        if isinstance(event, Step):
            self._claim(event)
        elif isinstance(event, StepDigest):
            self._digest(event)
        elif self._meets is not None:
            told = self._meets(self, event)
            t: int | None = getattr(event, "t", None)
            if told is not None and t is not None and t >= self._begin:
                self._add(t, getattr(event, "dur", 0), None, 1, told)

    def found(self) -> Occurrences:
        return Occurrences(self._total, tuple(self._first), tuple(self._parts), self._wall / 1e9)

    def here(self, stack: int) -> bool:
        """``stack`` is the line of the finding."""
        known = self._here.get(stack)
        if known is None:
            known = self._here[stack] = self.at(self._names.place(stack))
        return known

    def at(self, place: Place) -> bool:
        mine = self._finding.place
        return (place.file, place.line) == (mine.file, mine.line)

    def is_operation(self, text: int) -> bool:
        return not self._finding.operation or self._names.text(text) == self._finding.operation

    def _add(self, t: int, dur: int, step: int | None, count: int, told: str) -> None:
        self._total += count
        self._parts[min(PARTS - 1, max(0, (t - self._begin) * PARTS // self._wall))] += count
        if len(self._first) < MOST:
            if step is None:
                self._since_step.append(len(self._first))
                self._moments.append(t)
            self._first.append(Occurrence((t - self._begin) / 1e9, dur / 1e9, step, count, told))

    def _claim(self, event: Step) -> None:
        for position, moment in zip(self._since_step, self._moments, strict=True):
            if event.t <= moment <= event.t + event.dur:
                self._first[position] = msgspec.structs.replace(self._first[position], step=event.num)
        self._since_step.clear()
        self._moments.clear()

    def _digest(self, event: StepDigest) -> None:
        if event.t < self._begin:
            return
        table = {"transfer": event.reads, "fallback": event.fallbacks}.get(self._finding.kind, {})
        for key, histogram in table.items():
            count, total, *_ = (*histogram, 0, 0)
            stack, _, op = key.partition(":")
            if stack.isdecimal() and op.isdecimal() and self.here(int(stack)) and self.is_operation(int(op)):
                self._add(event.t, total, event.num, count, "")
        if self._finding.kind == "idle_gap":
            for name, histogram in event.scopes.items():
                count, total, *_ = (*histogram, 0, 0)
                if name.isdecimal() and self._names.text(int(name)) == self._finding.operation:
                    self._add(event.t, total, event.num, count, "")


# What of the log is an occurrence: a function for each kind, giving what is to be told of it, or None.


def _compiled(search: _Search, event: Any) -> str | None:
    if type(event) is not Compile:
        return None
    change = event.change
    if change is None:
        return "" if search.here(event.stack) else None
    made = change.made if change.what in ("shape", "dtype") else 0  # the finding is at the line that made the tensor
    if any(stack and search.here(stack) for stack in (made, change.stack, event.stack)):
        return f"{change.old} -> {change.new}"
    return None


def _read(search: _Search, event: Any) -> str | None:
    if type(event) is TransferFromDevice and search.here(event.stack) and search.is_operation(event.op):
        return ""
    return None


def _fell_back(search: _Search, event: Any) -> str | None:
    if type(event) is Fallback and search.here(event.stack) and search.is_operation(event.op):
        return ""
    return None


def _barred(search: _Search, event: Any) -> str | None:
    return f"{event.ops} operations" if type(event) is Barrier and search.here(event.stack) else None


def _broke(search: _Search, event: Any) -> str | None:
    return event.reason if type(event) is GraphBreak and search.here(event.stack) else None


def _idled(search: _Search, event: Any) -> str | None:
    names, finding = search._names, search._finding
    if type(event) is Scope:
        return "" if finding.operation and names.text(event.name) == finding.operation else None
    if type(event) is Hole:
        here = not finding.operation and search.at(culprit(*names.bracket(event.before, event.after)))
        return "" if here else None
    named = "data wait" if type(event) is DataWait else "garbage collection" if type(event) is Gc else None
    return "" if named is not None and named == finding.operation else None


_MEETS: dict[str, Callable[[_Search, Any], str | None]] = {
    "recompile": _compiled,
    "growing_graph": _barred,
    "missing_barrier": _compiled,
    "compile_cost": _compiled,
    "transfer": _read,
    "fallback": _fell_back,
    "excess_barriers": _barred,
    "graph_break": _broke,
    "idle_gap": _idled,
}
