"""What an export draws and counts of a run: its steps, its executions, and the window in which both are compared.

A fold over events, like the analysis, but one that keeps *when* things happened. Everything is in nanoseconds of the
recording's monotonic clock, and kept in flat arrays: a log of a million events stays far below a gigabyte.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

import msgspec

from xlaprof import events as ev
from xlaprof.export.names import Names

#: What steps are called when the program has no ``StepTrace`` and they are the stretches between barriers.
INFERRED = "step"


Notes = dict[str, str | int | float]


class StepSpan(msgspec.Struct, frozen=True):
    """One step of the program."""

    name: str
    num: int
    start: int  # ns
    end: int  # ns
    tid: int = 1  # thread; 0: none, the step was inferred
    notes: Notes = {}


class Execution(msgspec.Struct, frozen=True):
    """A program on a device over ``[start, end)``, in ns.

    A step that the log sums up (``summed``: how many executions) is one of these too, as long as the device was
    busy in it. That length is true; the place is not known, and taken to be the step's beginning.
    """

    start: int
    end: int
    program: int
    seq: int
    trigger: str
    stack: int
    error: str = ""
    summed: int = 0
    until: int = 0  # end of what it stands for: of the summed step, else of itself


class Series:
    """Events of one kind: when (ns), how long (ns), and how many at once."""

    def __init__(self) -> None:
        self.t = array("q")
        self.dur = array("q")
        self.n = array("q")

    def add(self, t: int, dur: int, n: int = 1) -> None:
        """Note ``n`` events at ``t`` that took ``dur`` together."""
        self.t.append(t)
        self.dur.append(dur)
        self.n.append(n)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return zip(self.t, self.dur, self.n, strict=True)


class Timeline:
    """Feed it events, then ask."""

    def __init__(self) -> None:
        self.names = Names()
        self.header: ev.Header | None = None
        self.device: ev.Device | None = None
        self.count = 0
        self.first: int | None = None  # ns: the earliest and
        self.last = 0  # ns: the latest moment that any event speaks of
        self.programs: dict[int, ev.Compile] = {}
        self.counters: list[ev.Counters] = []
        #: kind of activity -> (moment, ns it took); "transfer wait" is the part of "transfer from device" that waits
        self.series: dict[str, Series] = defaultdict(Series)
        self.dropped = 0
        self.others = 0  # further recordings in the same log
        self._steps: list[StepSpan] = []
        self._barriers: dict[int, list[int]] = {}  # stack -> ends, of barriers that executed something
        self._first_starts: dict[int, int] = {}  # stack -> end of the barrier before its first
        self._last_barrier = 0
        self._executions: dict[int, list[Execution]] = defaultdict(list)
        self._told: list[tuple[int, int, int, int]] = []  # start and end of a summed step, its busy ns, its executions

    def feed(self, event: ev.Event) -> bool:
        """Take in one event; False once the log goes on with another recording, whose clock is another one too."""
        if isinstance(event, ev.Header) and self.header is not None:
            mine = self.header
            self.others += (event.pid, event.host, event.rank) != (mine.pid, mine.host, mine.rank)
        if self.others:
            return False
        self.count += 1
        if isinstance(event, ev.Text | ev.Stack | ev.Thread):
            self.names.feed(event)
        elif isinstance(event, ev.Header):
            self.names.feed(event)
            self.header = self.header or event
        elif isinstance(event, ev.Dropped):
            self.dropped += event.count
        else:
            self._extend(event)
            self._take(event)
        return True

    def _take(self, event: ev.Event) -> None:
        match event:
            case ev.Step():
                name = self.names.text(event.name, "step")
                notes: Notes = {"error": event.error} if event.error else {}
                self._steps.append(
                    StepSpan(name, event.num, event.t, event.t + event.dur, event.tid, notes=notes | plain(event.meta))
                )
            case ev.StepDigest():
                self._digest(event)
            case ev.Execute():
                self._executions[event.device].append(
                    Execution(event.start, event.end, event.program, event.seq, event.trigger, event.stack, event.error)
                )
                self.series["enqueue"].add(event.t, event.enqueue)
            case ev.Barrier():
                self._barrier(event)
                self.series["tracing"].add(event.t, event.tracing)
            case ev.Compile():
                self.programs.setdefault(event.program, event)
                self.series["compile"].add(event.t, event.dur)
            case ev.TransferFromDevice():
                self.series["transfer from device"].add(event.t, event.dur)
                self.series["transfer wait"].add(event.t, event.wait)
            case ev.TransferToDevice():
                self.series["transfer to device"].add(event.t, event.dur)
            case ev.Fallback():
                self.series["fallback"].add(event.t, event.dur)
            case ev.Gc():
                self.series["gc"].add(event.t, event.dur)
            case ev.DataWait():
                self.series["data wait"].add(event.t, event.dur)
            case ev.Counters():
                self.counters.append(event)
            case ev.Device():
                self.device = event
            case _:
                pass  # drawn on the host's lanes, nothing to count

    def _extend(self, event: ev.Event) -> None:
        start: int
        if isinstance(event, ev.Execute):
            start, end = event.t, max(event.end, event.t)
        else:
            start = getattr(event, "t", 0)
            end = start + getattr(event, "dur", 0)
        if self.first is None or start < self.first:
            self.first = start
        self.last = max(self.last, end)

    def _barrier(self, event: ev.Barrier) -> None:
        if event.trigger == "read":
            return
        end = event.t + event.dur
        if event.execution:
            if event.stack not in self._barriers:
                self._barriers[event.stack] = []
                self._first_starts[event.stack] = self._last_barrier
            self._barriers[event.stack].append(end)
        self._last_barrier = end

    def _digest(self, event: ev.StepDigest) -> None:
        """A step that the log sums up: its sums become series at its start, so that scalars count them."""
        notes: Notes = {"summed": "steady step, told by its sums"}
        for id, (count, total, longest) in event.scopes.items():
            name = self.names.text(int(id), f"scope {id}")
            notes[f"scope {name}"] = f"{count} x, {total / 1e6:.3f} ms in all, longest {longest / 1e6:.3f} ms"
        for kind, table in (("transfer from device", event.reads), ("fallback", event.fallbacks)):
            for count, total, _ in table.values():
                self.series[kind].add(event.t, total, count)
        self.series["tracing"].add(event.t, event.tracing, event.barriers)
        self.series["enqueue"].add(event.t, 0, event.executions)
        span = (event.t, event.t + event.dur)
        name = self.names.text(event.name, "step")
        self._steps.append(StepSpan(name, event.num, *span, event.tid, notes))
        self._told.append((*span, event.busy, event.executions))

    @property
    def base(self) -> int:
        """The moment that exports call zero."""
        return self.first or 0

    def unix_ns(self, t: int) -> int:
        """Moment ``t`` on the unix clock; as it stands where the log has no header."""
        return t if self.header is None else t - self.header.mono_ns + self.header.unix_ns

    def steps(self) -> list[StepSpan]:
        """All steps by start; without any ``StepTrace`` in the program, the stretches between visits
        of the barrier that is reached most often."""
        if self._steps:
            return sorted(self._steps, key=lambda s: (s.start, -s.end))
        if not self._barriers:
            return []
        # The barrier of a loop is the one that is reached most often.
        stack, ends = max(self._barriers.items(), key=lambda item: len(item[1]))
        borders = [self._first_starts[stack] or self.base, *ends]
        return [StepSpan(INFERRED, i, a, b, tid=0) for i, (a, b) in enumerate(pairwise(borders))]

    def devices(self) -> list[int]:
        """Numbers of the devices that ran anything."""
        return sorted(self._executions) or ([0] if self._told else [])

    def executions(self, device: int) -> list[Execution]:
        """What ran on ``device``, by start; never two at once (a queue runs one program after the other)."""
        rows = [(e.start, e.end, e.end - e.start, e) for e in self._executions[device]]
        rows += [(a, b, busy, Execution(a, b, 0, 0, "", 0, "", n)) for a, b, busy, n in self._told]
        rows.sort(key=lambda row: row[:2])
        found, free = [], self.base
        for start, until, busy, e in rows:
            start = max(start, free)
            end = start + min(busy, until - start)
            if start < until:
                found.append(msgspec.structs.replace(e, start=start, end=end, until=until))
            free = max(free, until)
        return found


def plain(meta: Mapping[str, str | int | float | bool | None]) -> Notes:
    """A scope's metadata as texts and numbers, under names that cannot be taken for a profile's own."""
    return {
        f"meta.{key}": str(value) if value is None or isinstance(value, bool) else value for key, value in meta.items()
    }
