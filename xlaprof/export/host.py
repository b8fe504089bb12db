"""The host in a profile: one lane per thread with steps, scopes and activities, each with its line of code.

Holes (no operation was recorded between two known lines) may cross the borders of scopes, which one lane cannot draw:
they have a lane of their own beside that of their thread. Input has one, too. There XProf looks for the names that
TensorFlow gives to the wait for a batch, to the copy of it to the device, and to the work of making it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import asdict

from xlaprof import events as ev
from xlaprof.analysis.diagnosis import cause
from xlaprof.export.links import STEP, flow_out
from xlaprof.export.names import Line as Shown
from xlaprof.export.names import Names
from xlaprof.export.steps import borders, cut, step_ids
from xlaprof.export.timeline import StepSpan, plain
from xlaprof.export.xplane import Line, Plane, Stats, Value

#: XProf takes the plane of this name for the host.
HOST_PLANE = "/host:CPU"

#: XProf shows a figure below 0 as "unknown", and a missing one as 0.0%.
UNKNOWN_UTILIZATION = {"matrix_unit_utilization_percent": -1.0, "hbm_utilization_percent": -1.0}

_PLACED = ("t", "dur", "tid")  # fields that say where an event is drawn


class HostLanes:
    """Draws the events of the host, under the names that the log has defined so far."""

    def __init__(self, plane: Plane, names: Names) -> None:
        self._plane = plane
        self._names = names
        self._lanes: dict[tuple[int, bool], Line] = {}
        self._last: list[Line] = []  # after those of the threads
        self._places: dict[int, bytes] = {}  # stack -> stats
        self._scopes: dict[int, int] = {}  # Text id -> name of the plane
        self._draw_kind: dict[type, Callable[[Any], None]] = {
            ev.Text: self._renamed,
            ev.Scope: self._scope,
            ev.Compile: self._compile,
            ev.Barrier: self._barrier,
            ev.TransferFromDevice: self._read,
            ev.Fallback: self._fallback,
            ev.Gc: self._gc,
            ev.Hole: self._hole,
            ev.GraphBreak: self._break,
        }

    def feed(self, event: ev.Event) -> None:
        """Draw ``event``, if it is an activity of the host."""
        draw = self._draw_kind.get(type(event))
        if draw is not None:
            draw(event)
        elif event.label:
            stats = {name: value for name, value in asdict(event).items() if name not in _PLACED}
            self._draw(event, event.label, stats.pop("stack", 0), stats)

    def feed_scopes(self, scopes: Iterable[ev.Scope]) -> None:
        """Draw scopes, of which a recording has most."""
        names, places, lanes = self._scopes, self._places, self._lanes
        for e in scopes:
            name, place, lane = names.get(e.name), places.get(e.stack), lanes.get((e.tid, False))
            if name is None or place is None or lane is None or e.meta or e.error:
                self._scope(e)
            else:  # as ``_draw`` does
                lane.add(name, e.t, e.dur, place)

    def _scope(self, e: ev.Scope) -> None:
        stats: Stats | None = None
        if e.meta or e.error:
            stats = plain(e.meta) | ({"error": e.error} if e.error else {})
        name = self._names.text(e.name, "scope")
        self._draw(e, name, e.stack, stats)
        if self._names.knows(e.name):
            self._scopes[e.name] = self._plane.name(name)

    def _renamed(self, e: ev.Text) -> None:
        self._scopes.pop(e.id, None)

    def _compile(self, e: ev.Compile) -> None:
        stats: dict[str, Value] = {"graph": e.graph, "ops": e.ops, "trigger": e.trigger}
        c = cause(e)
        if c is not None:
            stats["change"] = f"{c.what} of {c.subject or 'the graph'}: {c.old} -> {c.new}"
        if e.cached:
            stats["cached"] = "persistent compilation cache"
        self._draw(e, f"compile program {e.program}", e.stack, stats)

    def _barrier(self, e: ev.Barrier) -> None:
        stats: dict[str, Value] = {"ops": e.ops, "tracing_us": e.tracing / 1000}
        if e.execution:
            stats |= {"execution": e.execution, "flow": flow_out(e.execution)}
        self._draw(e, f"barrier ({e.trigger})", e.stack, stats)

    def _read(self, e: ev.TransferFromDevice) -> None:
        stats: dict[str, Value] = {"bytes": e.bytes, "wait_us": e.wait / 1000, "tensors": e.tensors}
        self._draw(e, f"transfer from device: {self._names.text(e.op, 'read')}", e.stack, stats)

    def _fallback(self, e: ev.Fallback) -> None:
        self._draw(e, f"fallback: {self._names.text(e.op, 'operation')}", e.stack)

    def _gc(self, e: ev.Gc) -> None:
        self._draw(e, "garbage collection", 0, {"generation": e.generation, "collected": e.collected})

    def _hole(self, e: ev.Hole) -> None:
        before, after = self._names.between(e.before, e.after)
        stats: dict[str, Value] = {"from_line": before.where, "to_line": after.where}
        self._draw(e, "no operation recorded", 0, stats, beside=True)

    def _break(self, e: ev.GraphBreak) -> None:
        stats: dict[str, Value] = {"reason": e.reason, "operation": self._names.text(e.op)}
        self._draw(e, "graph break", e.stack, stats)

    def steps(self, steps: Iterable[StepSpan], main: Sequence[StepSpan]) -> None:
        """Draw ``steps`` on their threads, inferred ones on a lane of their own. XProf counts those that are ``main``,
        from 0, and appends their numbers: the first is among them so that the numbers agree with the program's.
        """
        roots, ids = {id(step) for step in main}, step_ids(main)
        root = self._plane.stats({"_r": 1, "_pt": STEP})
        for step in steps:
            name, link = f"{step.name} {step.num}", b""
            stats: dict[str, Value] = {"step_num": step.num}
            if id(step) in roots:
                name, link = step.name, root
                stats["_p"] = ids[step.start]
            drawn = self._plane.stats(stats | step.notes if step.notes else stats) + link
            self._lane(step.tid).add(self._plane.name(name), step.start, step.end - step.start, drawn)

    def input(self, stretches: Iterable[tuple[int, int, str, bool]], main: Sequence[StepSpan]) -> None:
        """Draw idle time in which input was on its way: start, end, cause, and whether it was the copy itself."""
        lane, at = self._plane.line(0, "input: what the idle device waited for"), borders(main)
        starts = [step.start for step in main]
        self._last.append(lane)
        for start, end, what, copying in stretches:
            shown = f"input: {what}"
            # the wait is counted to the step, and the work within it to what it was
            wait = self._plane.name("MemcpyHToD", shown) if copying else self._plane.name("IteratorGetNext", "input")
            work = self._plane.name(f"Iterator::{what}", shown)
            for begin, stop in cut(at, start, end):
                nth = bisect_right(starts, begin) - 1
                inside = nth >= 0 and stop <= main[nth].end
                link = self._plane.stats({"_ct": STEP, "_c": nth + 1}) if inside else b""
                lane.add(wait, begin, stop - begin, link)
                if not copying:
                    lane.add(work, begin, stop - begin)

    def finish(self) -> None:
        """Name and order the lanes: a log may name a thread after it was first seen."""
        for lane_id, ((tid, beside), lane) in enumerate(sorted(self._lanes.items(), key=lambda item: item[0]), 1):
            lane.id = lane_id
            thread = self._names.thread(tid) if tid else "steps (from barrier to barrier)"
            lane.name = f"{thread}: between operations" if beside else thread
        for lane_id, lane in enumerate(self._last, len(self._lanes) + 1):
            lane.id = lane_id

    def _draw(self, e: Any, name: str, stack: int, stats: Stats | None = None, beside: bool = False) -> None:
        drawn = self._places.get(stack)
        if drawn is None:
            drawn = self._place(stack)
        if stats:
            drawn += self._plane.stats(stats)
        lane = self._lanes.get((getattr(e, "tid", 1), beside))
        if lane is None:
            lane = self._lane(getattr(e, "tid", 1), beside)
        lane.add(self._plane.name(name), e.t, getattr(e, "dur", 0), drawn)

    def _place(self, stack: int) -> bytes:
        """The stats that say where a stack is; kept once it is known."""
        line = self._names.line(stack) if stack else Shown()
        known = (("line", line.where), ("code", line.code), ("module", line.module))
        found = self._plane.stats({name: text for name, text in known if text})
        if found or not stack:
            self._places[stack] = found
        return found

    def _lane(self, tid: int, beside: bool = False) -> Line:
        found = self._lanes.get((tid, beside))
        if found is None:
            found = self._lanes[tid, beside] = self._plane.line(0, "")
        return found
