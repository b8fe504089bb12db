"""The host in a profile: one lane per thread with steps, scopes and activities, each with its line of code.

Holes (no operation was recorded between two known lines) may cross the borders of scopes, which one lane cannot draw:
they have a lane of their own beside that of their thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import asdict

from xlaprof import events as ev
from xlaprof.analysis.diagnosis import cause
from xlaprof.export.links import STEP, flow_out
from xlaprof.export.names import Names
from xlaprof.export.timeline import StepSpan, plain
from xlaprof.export.xplane import Line, Plane, Value

#: XProf takes the plane of this name for the host.
HOST_PLANE = "/host:CPU"

_PLACED = ("t", "dur", "tid")  # fields that say where an event is drawn


class HostLanes:
    """Draws the events of the host, under the names that the log has defined so far."""

    def __init__(self, plane: Plane, names: Names) -> None:
        self._plane = plane
        self._names = names
        self._lanes: dict[tuple[int, bool], Line] = {}
        self._draw_kind: dict[type, Callable[[Any], None]] = {
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

    def _scope(self, e: ev.Scope) -> None:
        stats: dict[str, Value] = plain(e.meta) if e.meta else {}
        if e.error:
            stats["error"] = e.error
        self._draw(e, self._names.text(e.name, "scope"), e.stack, stats)

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
        self._draw(e, f"fallback: {self._names.text(e.op, 'operation')}", e.stack, {})

    def _gc(self, e: ev.Gc) -> None:
        self._draw(e, "garbage collection", 0, {"generation": e.generation, "collected": e.collected})

    def _hole(self, e: ev.Hole) -> None:
        before, after = self._names.between(e.before, e.after)
        stats: dict[str, Value] = {"from_line": before.where, "to_line": after.where}
        self._draw(e, "no operation recorded", 0, stats, beside=True)

    def _break(self, e: ev.GraphBreak) -> None:
        stats: dict[str, Value] = {"reason": e.reason, "operation": self._names.text(e.op)}
        self._draw(e, "graph break", e.stack, stats)

    def steps(self, steps: Iterable[StepSpan], main: Iterable[StepSpan]) -> None:
        """Draw ``steps`` on their threads, inferred ones on a lane of their own. XProf counts those that are ``main``,
        from 0, and appends their numbers: the first is among them so that the numbers agree with the program's.
        """
        roots = {id(step) for step in main}
        for step in steps:
            stats: dict[str, Value] = {"step_num": step.num} | step.notes
            name = f"{step.name} {step.num}"
            if id(step) in roots:
                stats |= {"_r": 1, "_pt": STEP, "_p": step.start}
                name = step.name
            self._lane(step.tid).add(self._plane.name(name), step.start, step.end - step.start, stats)

    def finish(self) -> None:
        """Name and order the lanes: a log may name a thread after it was first seen."""
        for lane_id, ((tid, beside), lane) in enumerate(sorted(self._lanes.items(), key=lambda item: item[0]), 1):
            lane.id = lane_id
            thread = self._names.thread(tid) if tid else "steps (from barrier to barrier)"
            lane.name = f"{thread}: between operations" if beside else thread

    def _draw(self, e: Any, name: str, stack: int, stats: dict[str, Value], beside: bool = False) -> None:
        if stack:
            line = self._names.line(stack)
            known = (("line", line.where), ("code", line.code), ("module", line.module))
            stats |= {name: text for name, text in known if text}
        self._lane(getattr(e, "tid", 1), beside).add(self._plane.name(name), e.t, getattr(e, "dur", 0), stats)

    def _lane(self, tid: int, beside: bool = False) -> Line:
        found = self._lanes.get((tid, beside))
        if found is None:
            found = self._lanes[tid, beside] = self._plane.line(0, "")
        return found
