"""The device in a profile: when each execution ran, the steps it is measured by, and the gaps between.

XProf computes the numbers of a device from three lines of a plane that is named like a TPU core:

``Steps``        one event per step. Their mean is XProf's average step time.
``XLA Modules``  the executions.
``XLA Ops``      the time the device was busy. The rest, from the first to the last event of ``Steps`` and ``XLA Ops``,
                 is idle.

``Steps`` holds the steps of the report's median that lie between the device's first and last execution: the window of
XProf is then that of the report. Each execution is one event of ``XLA Ops``, since a run.log does not know the inside
of a program. It is cut at the borders of steps, because XProf counts an operation wholly to the step in which it
begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from xlaprof.export.links import STEP, flow_in
from xlaprof.export.names import Names
from xlaprof.export.steps import AveragedSteps
from xlaprof.export.timeline import Execution
from xlaprof.export.xplane import Plane, Stats, Value
from xlaprof.text.quantities import plural

#: The program id of what is not one program: 0 means none to XProf.
_UNKNOWN = 2**31 - 1

#: start of an idle gap -> its cause, and the line of code where known
Causes = Mapping[int, tuple[str, str]]


class DeviceLanes:
    """Draws one device. ``device_type`` is what XProf shows as the kind of hardware."""

    def __init__(self, id: int, device: int, device_type: str, steps: AveragedSteps, names: Names) -> None:
        self.plane = Plane(id, f"/device:TPU:{device}", {"device_type_string": device_type})
        self._steps = steps
        self._names = names
        line = self.plane.line(1, "Steps")
        self._modules = self.plane.line(2, "XLA Modules")
        self._ops = self.plane.line(3, "XLA Ops")
        for step in steps.steps:
            stats: Stats = {"_ct": STEP, "_c": step.start}
            line.add(self.plane.name(f"{step.name} {step.num}"), step.start, step.end - step.start, stats)

    def draw(self, e: Execution) -> None:
        """Draw one execution."""
        stats: dict[str, Value] = {}
        line = self._names.line(e.stack)
        if line.where:
            stats |= {"line": line.where, "code": line.code}
        if e.summed:
            stats["summed"] = f"{plural(e.summed, 'execution')} of a step recorded as sums: when is not known"
        else:
            stats |= {"run_id": e.seq, "trigger": e.trigger, "flow": flow_in(e.seq)}
        if e.error:
            stats["error"] = e.error
        module = self.plane.name(f"program_{e.program}({e.program})" if e.program else "summed executions")
        self._modules.add(module, e.start, e.end - e.start, stats)
        op = self._op(e)
        for start, end in self._steps.cut(e.start, e.end):
            self._ops.add(op, start, end - start)

    def _op(self, e: Execution) -> int:
        """One name for each program and the line of its barrier: XProf's tables have a row for each."""
        where = self._names.line(e.stack).where
        name = f"program {e.program}" if e.program else "summed executions"
        # XProf drops an operation without program_id and symbol_id, and calls the device idle.
        stats: dict[str, Value] = {"program_id": e.program or _UNKNOWN, "symbol_id": 1, "hlo_category": "execution"}
        if where:
            name += f" at {where}"
            stats["source"] = where
        return self.plane.name(name, stats=stats, key=("op", name))


def gaps_plane(id: int, device: int, executions: Sequence[Execution], causes: Causes) -> Plane:
    """The idle gaps of a device, named after their causes, on a plane that XProf draws and does not count."""
    plane = Plane(id, f"/device:CUSTOM:idle gaps of device {device}")
    line = plane.line(1, "idle")
    for e, following in pairwise(executions):
        if e.until < following.start:
            blame, where = causes.get(e.until, ("", ""))
            name = plane.name(f"idle: {blame}" if blame else "idle")
            line.add(name, e.until, following.start - e.until, {"line": where} if where else None)
    return plane
