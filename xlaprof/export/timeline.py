"""The steps, executions and host activities of a run, with the moments at which they happened.

All moments and lengths are nanoseconds of the recording's monotonic clock. They are kept in flat arrays: a log of a
million events stays far below a gigabyte.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from xlaprof import events as ev
from xlaprof.export.names import Names
from xlaprof.text.quantities import duration

#: The name of steps of a program without ``StepTrace``: the stretches between barriers.
INFERRED = "step"
#: Later moments, in ns, come from a damaged log: 2**60 ns are 36 years.
_LATEST = 2**60

Notes = dict[str, str | int | float]
_NONE: Notes = {}  # of most steps


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

    The executions of a step that the log holds as sums are one of these, ``summed`` says how many. Its length is the
    time that the device was busy in the step; it is drawn at the beginning of the step, since the moments are not
    known.
    """

    start: int
    end: int
    program: int
    seq: int
    trigger: str
    stack: int
    error: str = ""
    summed: int = 0
    until: int = 0  # the end of the summed step, else ``end``


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


class Uploads:
    """When which thread copied to the device, and at which stack. Shared by all copies of a run."""

    def __init__(self) -> None:
        self.t = array("q")
        self.stack = array("q")
        self.tid = array("q")

    def add(self, t: int, stack: int, tid: int) -> None:
        self.t.append(t)
        self.stack.append(stack)
        self.tid.append(tid)

    def within(self, begin: int, stop: int, tid: int) -> list[tuple[int, int]]:
        """(moment, stack) of those of a thread that began in ``[begin, stop]``."""
        those = range(bisect_left(self.t, begin), bisect_right(self.t, stop))
        return [(self.t[nth], self.stack[nth]) for nth in those if self.tid[nth] == tid]


class Timeline:
    """A fold over the events of one recording."""

    def __init__(self) -> None:
        self.names = Names()
        self.header: ev.Header | None = None
        self.count = 0
        self.first: int | None = None  # ns: the earliest and
        self.last = 0  # ns: the latest moment of any event
        self.counters: list[ev.Counters] = []
        #: by kind of activity; "transfer wait" is the part of "transfer from device" in which the host waits
        self.series: dict[str, Series] = defaultdict(Series)
        self.uploads = Uploads()
        self.dropped = 0
        self.others = 0  # further recordings in the same log
        self.implausible = 0  # events left out for their time
        self._steps: list[StepSpan] = []
        self._executions: dict[int, list[Execution]] = defaultdict(list)
        self._summed: list[tuple[int, int, int, int]] = []  # start and end of a summed step, busy ns, executions

        add = self.series
        self._untimed: dict[type, Callable[[Any], None]] = {
            ev.Header: self._header,
            ev.Text: self.names.feed,
            ev.Stack: self.names.feed,
            ev.Thread: self.names.feed,
            ev.Dropped: self._dropped,
        }
        #: Kinds that only the lanes of the host show are in neither table.
        self._timed: dict[type, Callable[[Any], None]] = {
            ev.Step: self._step,
            ev.StepDigest: self._digest,
            ev.Execute: self._execute,
            ev.Barrier: lambda e: add["tracing"].add(e.t, e.tracing),
            ev.Compile: lambda e: add["compile"].add(e.t, e.dur),
            ev.TransferFromDevice: self._read,
            ev.TransferToDevice: self._upload,
            ev.Fallback: lambda e: add["fallback"].add(e.t, e.dur),
            ev.Gc: lambda e: add["gc"].add(e.t, e.dur),
            ev.DataWait: lambda e: add["data wait"].add(e.t, e.dur),
            ev.Counters: self.counters.append,
        }

    def feed_all(self, events: list[Any]) -> tuple[list[Any], list[ev.Scope], list[Any]]:
        """Take in events that follow each other. Those that are not left out: all, the scopes, and the others."""
        scopes = [e for e in events if type(e) is ev.Scope]  # most are, and only lanes show them
        lengths, ends = [e.dur for e in scopes], [e.t + e.dur for e in scopes]
        sane = min(lengths, default=0) >= 0 and max(ends, default=0) < _LATEST
        if self.others or not sane or any(type(e) is ev.Header for e in events):
            kept = [e for e in events if self.feed(e)]
            return kept, [e for e in kept if type(e) is ev.Scope], [e for e in kept if type(e) is not ev.Scope]
        if scopes:
            first = min([e.t for e in scopes])
            self.count += len(scopes)
            self.first = first if self.first is None else min(first, self.first)
            self.last = max(self.last, *ends)
        others = [e for e in events if type(e) is not ev.Scope and self.feed(e)]
        if len(scopes) + len(others) == len(events):
            return events, scopes, others
        left = set(map(id, others))
        return [e for e in events if type(e) is ev.Scope or id(e) in left], scopes, others

    def feed(self, event: Any) -> bool:
        """Take in one event. False for one that is left out: its time is impossible, or it belongs to another recording
        in the same log, which has another clock."""
        if self.others:
            return False
        self.count += 1
        kind = type(event)
        untimed = self._untimed.get(kind)
        if untimed is not None:
            untimed(event)
            return not self.others
        start: int = event.t
        end: int = event.end if kind is ev.Execute else start + getattr(event, "dur", 0)
        if not start <= end < _LATEST:
            self.implausible += 1
            return False
        if self.first is None or start < self.first:
            self.first = start
        if end > self.last:
            self.last = end
        timed = self._timed.get(kind)
        if timed is not None:
            timed(event)
        return True

    def _header(self, event: ev.Header) -> None:
        if self.header is None:
            self.header = event
            self.names.feed(event)
        elif (event.pid, event.host, event.rank) != (self.header.pid, self.header.host, self.header.rank):
            self.others += 1

    def _dropped(self, event: ev.Dropped) -> None:
        self.dropped += event.count

    def _step(self, event: ev.Step) -> None:
        notes = _NONE
        if event.meta or event.error:
            notes = plain(event.meta) | ({"error": event.error} if event.error else {})
        name = self.names.text(event.name, "step")
        self._steps.append(StepSpan(name, event.num, event.t, event.t + event.dur, event.tid, notes))

    def _execute(self, event: ev.Execute) -> None:
        self.series["enqueue"].add(event.t, event.enqueue)
        self._executions[event.device].append(
            Execution(
                event.start, event.end, event.program, event.seq, event.trigger, event.stack, event.error, 0, event.end
            )
        )

    def _read(self, event: ev.TransferFromDevice) -> None:
        self.series["transfer from device"].add(event.t, event.dur)
        self.series["transfer wait"].add(event.t, event.wait)

    def _upload(self, event: ev.TransferToDevice) -> None:
        self.series["transfer to device"].add(event.t, event.dur)
        self.uploads.add(event.t, event.stack, event.tid)

    def _digest(self, event: ev.StepDigest) -> None:
        """A step recorded as sums: they become series at its start, so that scalars count them."""
        notes: Notes = {"summed": "steady step, recorded as sums"}
        for id, (count, total, longest) in event.scopes.items():
            name = self.names.text(int(id) if id.isdecimal() else 0, f"scope {id}")
            lengths = f"{duration(total / 1e9)} in all, longest {duration(longest / 1e9)}"
            notes[f"scope {name}"] = f"{count} x, {lengths}"
        for kind, table in (("transfer from device", event.reads), ("fallback", event.fallbacks)):
            for _, (count, total, _) in table.items():
                self.series[kind].add(event.t, total, count)
        self.series["tracing"].add(event.t, event.tracing, event.barriers)
        self.series["enqueue"].add(event.t, 0, event.executions)
        span = (event.t, event.t + event.dur)
        name = self.names.text(event.name, "step")
        self._steps.append(StepSpan(name, event.num, *span, event.tid, notes))
        self._summed.append((*span, event.busy, event.executions))

    @property
    def base(self) -> int:
        """The moment that an export counts from."""
        return self.first or 0

    def unix_ns(self, t: int) -> int:
        """Moment ``t`` on the unix clock; since 1970 where the log has no header."""
        header = self.header
        return max(t - header.mono_ns + header.unix_ns, 0) if header is not None else t - self.base

    def steps(self, inferred: Sequence[tuple[int, int]] = ()) -> list[StepSpan]:
        """All steps by start; without ``StepTrace`` in the program those that the analysis ``inferred``."""
        if self._steps:
            return sorted(self._steps, key=lambda s: (s.start, -s.end))
        # the first may begin with the recording, before the first event
        begun = ((max(start, self.base), end) for start, end in inferred)
        return [StepSpan(INFERRED, i, start, end, tid=0) for i, (start, end) in enumerate(begun)]

    def devices(self) -> list[int]:
        """Numbers of the devices that ran anything."""
        return sorted(self._executions) or ([0] if self._summed else [])

    def executions(self, device: int) -> list[Execution]:
        """What ran on ``device``, by start; never two at once (a queue runs one program after the other)."""
        rows = self._executions[device] + [
            Execution(start, start + busy, 0, 0, "", 0, "", count, end) for start, end, busy, count in self._summed
        ]
        rows.sort(key=attrgetter("start", "until"))
        found, free = [], self.base
        for e in rows:
            start, until = max(e.start, free), e.until
            end = start + max(min(e.end - e.start, until - start), 0)
            if start < until:
                kept = start == e.start and end == e.end
                found.append(e if kept else msgspec.structs.replace(e, start=start, end=end))
            free = max(free, until)
        return found


def plain(meta: Mapping[str, str | int | float | bool | None]) -> Notes:
    """The metadata of a scope as texts and numbers, under names that XProf does not use."""
    return {
        f"meta.{key}": str(value) if value is None or isinstance(value, bool) else value for key, value in meta.items()
    }
