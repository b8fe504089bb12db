"""The host in a profile: one lane per thread with steps, scopes and what the host did, each with its line of code.

Holes (the host recorded nothing between two known lines) may cross the borders of scopes, which a lane cannot draw:
they have a lane of their own beside their thread's.
"""

from __future__ import annotations

from collections.abc import Iterable

from xlaprof import events as ev
from xlaprof.export.links import STEP, flow_out
from xlaprof.export.names import Names
from xlaprof.export.timeline import StepSpan, plain
from xlaprof.export.xplane import Line, Plane, Value

#: XProf takes the plane of this name for the host.
HOST_PLANE = "/host:CPU"


class HostLanes:
    """Feed it events; what it knows of names by then is what it shows."""

    def __init__(self, plane: Plane, names: Names) -> None:
        self._plane = plane
        self._names = names
        self._lanes: dict[tuple[int, bool], Line] = {}

    def feed(self, event: ev.Event) -> None:
        """Draw ``event``, if it is something that the host did."""
        match event:
            case ev.Scope():
                stats: dict[str, Value] = plain(event.meta)
                if event.error:
                    stats["error"] = event.error
                self._draw(event, self._names.text(event.name, "scope"), 0, stats)
            case ev.Compile():
                stats = {"graph": event.graph, "ops": event.ops, "trigger": event.trigger}
                if event.change is not None:
                    c = event.change
                    stats["change"] = f"{c.what} of {c.subject or 'the graph'}: {c.old} -> {c.new}"
                if event.cached:
                    stats["cached"] = "persistent compilation cache"
                self._draw(event, f"compile program {event.program}", event.stack, stats)
            case ev.Barrier():
                stats = {"ops": event.ops, "tracing_us": event.tracing / 1000}
                if event.execution:
                    stats |= {"execution": event.execution, "flow": flow_out(event.execution)}
                self._draw(event, f"barrier ({event.trigger})", event.stack, stats)
            case ev.TransferFromDevice():
                stats = {"bytes": event.bytes, "wait_us": event.wait / 1000, "tensors": event.tensors}
                name = f"transfer from device: {self._names.text(event.op, 'read')}"
                self._draw(event, name, event.stack, stats)
            case ev.TransferToDevice():
                stats = {"bytes": event.bytes, "tensors": event.tensors}
                self._draw(event, "transfer to device", event.stack, stats)
            case ev.Fallback():
                self._draw(event, f"fallback: {self._names.text(event.op, 'operation')}", event.stack, {})
            case ev.Gc():
                stats = {"generation": event.generation, "collected": event.collected}
                self._draw(event, "garbage collection", 0, stats)
            case ev.DataWait():
                self._draw(event, "data wait", event.stack, {})
            case ev.Hole():
                before, after = self._names.between(event.before, event.after)
                stats = {"from_line": before.where, "to_line": after.where}
                self._draw(event, "no operation recorded", 0, stats, beside=True)
            case ev.GraphBreak():
                stats = {"reason": event.reason, "operation": self._names.text(event.op)}
                self._draw(event, "graph break", event.stack, stats)
            case _:
                pass

    def steps(self, steps: Iterable[StepSpan], main: Iterable[StepSpan]) -> None:
        """Draw ``steps`` on their threads, inferred ones on a lane of their own; XProf counts those that are ``main``.

        The first of them is one too, though no average has it: so the program's numbers are XProf's, which begin
        at 0, wherever the program's do.
        """
        roots = {id(step) for step in main}
        for step in steps:
            stats: dict[str, Value] = {"step_num": step.num} | step.notes
            name = f"{step.name} {step.num}"
            if id(step) in roots:
                stats |= {"_r": 1, "_pt": STEP, "_p": step.start}
                name = step.name  # XProf appends the number
            self._lane(step.tid).add(self._plane.name(name), step.start, step.end - step.start, stats)

    def finish(self) -> None:
        """Name the lanes: a log may name a thread after it was first seen."""
        for (tid, beside), lane in self._lanes.items():
            thread = self._names.thread(tid) if tid else "steps (from barrier to barrier)"
            lane.name = f"{thread}: between operations" if beside else thread

    def _draw(self, event: ev.Event, name: str, stack: int, stats: dict[str, Value], beside: bool = False) -> None:
        line = self._names.line(stack)
        for key, text in (("line", line.where), ("code", line.code), ("module", line.module)):
            if text:
                stats[key] = text
        t, dur, tid = getattr(event, "t", 0), getattr(event, "dur", 0), getattr(event, "tid", 1)
        self._lane(tid, beside).add(self._plane.name(name), t, dur, stats)

    def _lane(self, tid: int, beside: bool = False) -> Line:
        found = self._lanes.get((tid, beside))
        if found is None:
            found = self._lanes[tid, beside] = self._plane.line(2 * tid + beside + 1, "")
        return found
