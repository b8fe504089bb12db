"""What the events of a recording add up to: one handler per kind of event, each of constant cost.

Nothing is concluded here; :mod:`xlaprof.analysis.summary` and the findings do that from these totals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from xlaprof.analysis import host
from xlaprof.analysis.idle import Hollow
from xlaprof.analysis.model import Place
from xlaprof.analysis.names import Names
from xlaprof.analysis.tallies import CompileRecord, FallbackTally, ReadTally, ScopeTally, Site, StepTally
from xlaprof.analysis.window import Window
from xlaprof.events import (
    Barrier,
    Compile,
    Compiling,
    Counters,
    DataWait,
    DeviceWait,
    Evicted,
    Execute,
    Fallback,
    Gc,
    GraphBreak,
    Hole,
    Scope,
    Step,
    StepDigest,
    TransferFromDevice,
    TransferToDevice,
)

_RECORDS = 10_000  # compiles, and graph breaks and pauses by place, kept one by one
_PROGRAMS = 50_000  # programs whose last run is remembered
_PENDING = 10_000  # reads, fallbacks and barriers held until a step claims them
_AT_ONCE = 200_000  # ns between the end of a transfer and that of the operation it was part of
_DEEPEST = 1000  # nesting of scopes told apart

#: Name id of steps that were inferred from barriers, which have no name.
INFERRED = 0


class _Read:
    """A read that may still turn out to belong to a step or to a fallback."""

    __slots__ = ("end", "event", "tally")

    def __init__(self, tally: ReadTally, event: TransferFromDevice) -> None:
        self.tally: ReadTally | None = tally
        self.event = event
        self.end = event.t + event.dur


class Totals:
    """The totals of one recording so far. Ids are the recording's own; lengths and moments are nanoseconds."""

    def __init__(self) -> None:
        self.names = Names()
        self.begin: int | None = None  # first and
        self.last = 0  # last moment of the recording
        self.window = Window()
        self.steps: dict[int, StepTally] = {}
        self.scopes: dict[int, ScopeTally] = {}
        self.reads: dict[tuple[int, int], ReadTally] = {}
        self.fallbacks: dict[tuple[int, int], FallbackTally] = {}
        self.sites: dict[int, Site] = {}
        self.compiles: list[CompileRecord] = []
        self.compiled = [0, 0]  # exact: count and ns
        self.executed = [0, 0]
        self.uploads = [0, 0]
        self.read = [0, 0]
        self.barriers = 0
        self.programs: dict[int, int] = {}  # program -> moment it was last enqueued, and
        self.program_runs: dict[int, int] = {}  # how often it ran
        self.pauses: dict[tuple[int, int], int] = {}  # (stack, DATA or GC) -> ns
        self.breaks: dict[tuple[int, str, int], int] = {}
        self.evicted = 0
        self.counters: Counters | None = None
        self.now = ("starting", 0)  # what it is doing, and since which moment
        self.compiling: tuple[int, Place] | None = None  # since when, for which line, while a compilation lasts
        self.step_num = -1
        self._paint = self.window.host.paint
        self._main = 1  # the thread that runs the steps
        self._named = False  # it is known: a step was named
        self._dominant: Site | None = None  # the barrier reached most often
        self._last_barrier = 0
        self._cut = False  # something cut the graph since the last step
        self._recent: deque[_Read] = deque(maxlen=_PENDING)  # since the last step
        self._unbarred: deque[_Read] = deque(maxlen=_PENDING)  # since the last barrier
        self._serial: deque[_Read] = deque(maxlen=_PENDING)  # since the last execution
        self._last_run = 0  # end of the last execution
        self._known = (0, 0)  # when and at which stack the main thread last ended a transfer or fallback
        self._inner: dict[int, list[int]] = {}  # thread -> ns of ended scopes by depth, not yet claimed by a parent
        self._fallen: deque[tuple[FallbackTally, int]] = deque(maxlen=_PENDING)  # fallbacks since the last step
        self._visited: deque[tuple[Site, int]] = deque(maxlen=_PENDING)  # barriers since the last step

    def handlers(self) -> dict[type, Callable[[Any], None]]:
        """What to call with each kind of event that has a time."""
        return {
            Scope: self._on_scope,
            Step: self._on_step,
            StepDigest: self._on_digest,
            Compiling: self._on_compiling,
            Compile: self._on_compile,
            Barrier: self._on_barrier,
            Execute: self._on_execute,
            TransferToDevice: self._on_upload,
            TransferFromDevice: self._on_read,
            DeviceWait: self._on_wait,
            Fallback: self._on_fallback,
            Gc: self._on_gc,
            DataWait: self._on_data,
            Hole: self._on_hole,
            GraphBreak: self._on_break,
            Evicted: self._on_evicted,
            Counters: self._on_counters,
        }

    def _seen(self, start: int, end: int) -> None:
        if self.begin is None or start < self.begin:
            self.begin = start
        if end > self.last:
            self.last = end

    def _on_counters(self, event: Counters) -> None:
        self.counters = event

    def _on_evicted(self, event: Evicted) -> None:
        self.evicted += 1

    # -- host intervals

    def _on_scope(self, event: Scope) -> None:
        start, dur, name = event.t, event.dur, event.name
        end = start + dur
        depth = event.depth
        if not 0 <= depth <= _DEEPEST:
            depth = _DEEPEST if depth > 0 else 0
        tally = self.scopes.get(name)
        if tally is None:
            tally = self.scopes[name] = ScopeTally()
        tally.add(dur)
        inner = self._inner.get(event.tid)
        if inner is None:
            inner = self._inner[event.tid] = []
        deeper = depth + 1
        if len(inner) <= deeper:
            inner.extend([0] * (deeper + 1 - len(inner)))
        own = dur
        if inner[deeper]:
            own -= inner[deeper]
            inner[deeper] = 0
        if own > 0:
            tally.own += own
        if depth:
            inner[depth] += dur
        if event.error:
            tally.errors += 1
        if event.stack and not tally.stack:
            tally.stack = event.stack
        if event.tid == self._main:
            floor = self.window.steps_end
            self._paint(start if start > floor else floor, end, host.SCOPE + name)
        if end > self.last:
            self.last = end

    def _on_gc(self, event: Gc) -> None:
        self._paint(event.t, event.t + event.dur, host.GC, event.stack)
        self._paused(event.stack, host.GC, event.dur)

    def _on_data(self, event: DataWait) -> None:
        if event.tid == self._main:
            self._paint(event.t, event.t + event.dur, host.DATA, event.stack)
            self._paused(event.stack, host.DATA, event.dur)

    def _on_wait(self, event: DeviceWait) -> None:
        if event.tid == self._main:
            self._paint(event.t, event.t + event.dur, host.TRANSFER, event.stack)

    def _on_hole(self, event: Hole) -> None:
        if event.tid == self._main:
            start, end = event.t, event.t + event.dur
            known, place = self._known
            if place and start - _AT_ONCE < known < end:  # a transfer told of a line nearer to the end of the hole
                if known > start:
                    self.window.hole(Hollow(start, known, event.before, place))
                self.window.hole(Hollow(max(start, known), end, place, event.after))
            else:
                self.window.hole(Hollow(start, end, event.before, event.after))

    def _paused(self, stack: int, cause: int, dur: int) -> None:
        key = (stack, cause)
        if key in self.pauses or len(self.pauses) < _RECORDS:
            self.pauses[key] = self.pauses.get(key, 0) + dur

    def _on_upload(self, event: TransferToDevice) -> None:
        self.uploads[0] += 1
        self.uploads[1] += event.dur
        if event.tid == self._main:
            self._paint(event.t, event.t + event.dur, host.UPLOAD, event.stack)

    # -- what the runtime did; on whatever thread, the program was waiting for it

    def _on_compiling(self, event: Compiling) -> None:
        self.compiling = (event.t, self.names.place(event.stack))
        self._seen(event.t, event.t)

    def _on_compile(self, event: Compile) -> None:
        self.compiled[0] += 1
        self.compiled[1] += event.dur
        end = event.t + event.dur
        self._paint(event.t, end, host.COMPILE, event.stack)
        site = self._site(event.stack)
        if event.trigger == "read" and event.loops > site.loops:
            site.trigger = event.trigger
            site.loops, site.loop = event.loops, event.loop
        if len(self.compiles) < _RECORDS:
            self.compiles.append(
                CompileRecord(
                    t=event.t,
                    dur=event.dur,
                    program=event.program,
                    ops=event.ops,
                    stack=event.stack,
                    trigger=event.trigger,
                    change=event.change,
                    nth=site.compiles,
                    visits=site.visits,
                    step=self.step_num + 1,
                    before=site.programs,
                )
            )
        site.compiles += 1
        site.programs = (*site.programs[-7:], event.program)
        self.compiling = None
        self.now = ("running", end)
        self._seen(event.t, end)

    def _on_barrier(self, event: Barrier) -> None:
        start, stack = event.t, event.stack
        end = start + event.dur
        self.barriers += 1
        if event.dur:
            self._paint(start, end, host.DISPATCH, stack)
        self.window.barrier(start, end, event.tracing)
        site = self._site(stack)
        site.trigger = event.trigger
        site.visits += 1
        if event.loops > site.loops:
            site.loops, site.loop = event.loops, event.loop
        if event.execution:
            site.visit(event.ops)
            site.dispatch.add(event.dur)
            self._visited.append((site, start))
            if event.trigger != "read":
                self._looped()
                if not self._named:
                    self._infer_step(site, end)
        if event.trigger != "read":
            self._cut = True
            self._last_barrier = end
        self._seen(start, end)

    def _looped(self) -> None:
        if self._last_barrier:
            for read in self._unbarred:
                if read.tally is not None:
                    read.tally.looped += 1
        self._unbarred.clear()

    def _infer_step(self, site: Site, end: int) -> None:
        """Without a StepTrace, a step is what lies between two visits of the barrier that is reached most often."""
        if site.executed == 1:
            site.start = self._last_barrier or self.begin or 0
        elif self._dominant is None or site is self._dominant or site.executed > self._dominant.executed:
            tally = self._step_tally(INFERRED)
            if site.executed == 2:
                tally.add(0, site.end - site.start)
                self.window.step(INFERRED, 0, site.start, site.end, first=True, named=False)
            self._dominant = site
            self.step_num = tally.count
            tally.add(self.step_num, end - site.end)
            self.window.step(INFERRED, self.step_num, site.end, end, first=False, named=False)
            self.now = ("running", end)
        site.end = end

    def _on_execute(self, event: Execute) -> None:
        start, end = event.start, event.end
        self.executed[0] += 1
        self.executed[1] += end - start
        if event.trigger != "read":
            self._cut = True
        if event.program in self.programs or len(self.programs) < _PROGRAMS:
            self.programs[event.program] = event.t
            self.program_runs[event.program] = self.program_runs.get(event.program, 0) + 1
        waiting = self._serial
        while waiting and waiting[0].end < end:
            read = waiting.popleft()
            if read.tally is not None:
                idle = start - max(read.end, self._last_run)
                if idle > 0:
                    read.tally.serial += min(idle, read.event.wait)
        if end > self._last_run:
            self._last_run = end
        self.window.execution(event.device, start, end)
        if self.now[0] != "running":
            self.now = ("running", event.t)
        self._seen(event.t, end)

    def _on_read(self, event: TransferFromDevice) -> None:
        self.read[0] += 1
        self.read[1] += event.dur
        end = event.t + event.dur
        self._paint(event.t, end, host.TRANSFER, event.stack)
        key = (event.stack, event.op)
        tally = self.reads.get(key)
        if tally is None:
            tally = self.reads[key] = ReadTally()
        tally.count += 1
        tally.dur += event.dur
        tally.wait += event.wait
        tally.bytes += event.bytes
        if event.dur > tally.most:
            tally.most = event.dur
        read = _Read(tally, event)
        self._recent.append(read)
        self._unbarred.append(read)
        self._serial.append(read)
        if event.tid == self._main:
            self._known = (end, event.stack)
        if end > self.last:
            self.last = end

    def _on_fallback(self, event: Fallback) -> None:
        start = event.t
        end = start + event.dur
        key = (event.stack, event.op)
        tally = self.fallbacks.get(key)
        if tally is None:
            tally = self.fallbacks[key] = FallbackTally()
        tally.count += 1
        tally.dur += event.dur
        if event.dur > tally.most:
            tally.most = event.dur
        for read in reversed(self._recent):  # the transfers it caused are its own
            cause = read.event
            if cause.t < start:
                break
            if read.tally is not None and cause.tid == event.tid and read.end <= end:
                read.tally.count -= 1
                read.tally.dur -= cause.dur
                read.tally.wait -= cause.wait
                read.tally.bytes -= cause.bytes
                read.tally = None
                tally.reads += 1
                tally.bytes += cause.bytes
        self.window.host.repaint(start, host.TRANSFER, host.FALLBACK)
        self._paint(start, end, host.FALLBACK, event.stack)
        self._fallen.append((tally, start))
        if event.tid == self._main:
            self._known = (end, event.stack)
        self._seen(start, end)

    def _on_break(self, event: GraphBreak) -> None:
        key = (event.stack, event.reason, event.op)
        if key in self.breaks or len(self.breaks) < _RECORDS:
            self.breaks[key] = self.breaks.get(key, 0) + 1

    # -- steps

    def _on_step(self, event: Step) -> None:
        start, dur = event.t, event.dur
        end = start + dur
        self._name_main(event.tid)
        tally = self._step_tally(event.name)
        tally.add(event.num, dur)
        number = tally.count
        if self._recent:
            key = (event.name, number)
            for read in self._recent:
                reads = read.tally
                if reads is not None and read.event.t >= start:
                    reads.in_steps += 1
                    if reads.last_step != key:
                        reads.last_step = key
                        reads.steps += 1
            self._recent.clear()
        if self._fallen:
            for fallen, moment in self._fallen:
                if moment >= start:
                    fallen.in_steps += 1
            self._fallen.clear()
        for site, moment in self._visited:
            if moment >= start:
                site.in_steps += 1
        self._visited.clear()
        self._count_unbarred(tally)
        self.step_num = event.num
        self.window.step(event.name, event.num, start, end, first=number == 1)
        if self.now[0] != "running":
            self.now = ("running", start)
        self._seen(start, end)

    def _on_digest(self, event: StepDigest) -> None:
        start = event.t
        end = start + event.dur
        self._name_main(event.tid)
        tally = self._step_tally(event.name)
        tally.add(event.num, event.dur)
        reads = fallbacks = scopes = 0
        for key, triple in event.reads.items():
            count, total, most = _triple(triple)
            if key in event.fallbacks:  # the transfers it caused are its own, and so is their time
                self._told_fallback(key).reads += count
                self.read[0] += count
                self.read[1] += total
                continue
            read = self._told_read(key)
            read.count += count
            read.told += count
            read.in_steps += count
            read.steps += 1
            read.dur += total
            read.told_dur += total
            read.most = max(read.most, most)
            reads += total
            self.read[0] += count
            self.read[1] += total
        for key, triple in event.fallbacks.items():
            count, total, most = _triple(triple)
            fallen = self._told_fallback(key)
            fallen.count += count
            fallen.in_steps += count
            fallen.dur += total
            fallen.most = max(fallen.most, most)
            fallbacks += total
        for key, triple in event.scopes.items():
            count, total, most = _triple(triple)
            scope = self.scopes.setdefault(_pair(key)[0], ScopeTally())
            scope.total.add_many(count, total, most)
            scope.told += total
            scopes += total
        self.barriers += event.barriers
        self.executed[0] += event.executions
        self.executed[1] += event.busy
        self._cut = self._cut or bool(event.barriers or event.executions)
        self._count_unbarred(tally)
        parts = {host.FALLBACK: fallbacks, host.TRANSFER: reads, host.TRACING: event.tracing, host.SCOPE: scopes}
        self.window.told(event.name, event.dur, event.busy, parts, first=tally.count == 1)
        self.window.execution(0, start, end, event.busy)
        self.window.steps_end = max(self.window.steps_end, end)
        self.step_num = event.num
        self._seen(start, end)

    def _name_main(self, tid: int) -> None:
        if not self._named:
            self._main = tid
            self._named = True

    def _count_unbarred(self, tally: StepTally) -> None:
        tally.unbarred = 0 if self._cut else tally.unbarred + 1
        tally.worst_unbarred = max(tally.worst_unbarred, tally.unbarred)
        self._cut = False

    def _step_tally(self, name: int) -> StepTally:
        tally = self.steps.get(name)
        if tally is None:
            tally = self.steps[name] = StepTally()
        return tally

    def _site(self, stack: int) -> Site:
        site = self.sites.get(stack)
        if site is None:
            site = self.sites[stack] = Site()
        return site

    def _told_read(self, key: str) -> ReadTally:
        return self.reads.setdefault(_pair(key), ReadTally())

    def _told_fallback(self, key: str) -> FallbackTally:
        return self.fallbacks.setdefault(_pair(key), FallbackTally())


def _triple(histogram: list[int]) -> tuple[int, int, int]:
    """Count, total and longest; zeros for what is missing."""
    count, total, most, *_ = (*histogram, 0, 0, 0)
    return count, total, most


def _pair(key: str) -> tuple[int, int]:
    """The ids in a digest's key "stack:op"; 0 for what is not a number."""
    stack, _, op = key.partition(":")
    return (int(stack) if stack.isdecimal() else 0), (int(op) if op.isdecimal() else 0)
