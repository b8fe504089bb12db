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

from collections.abc import Callable, Sequence
from itertools import pairwise

from xlaprof.analysis.model import RunInfo
from xlaprof.export.blame import Blame
from xlaprof.export.links import STEP, flow_in
from xlaprof.export.names import Names
from xlaprof.export.steps import AveragedSteps
from xlaprof.export.timeline import Execution
from xlaprof.export.xplane import Plane, Value
from xlaprof.text.quantities import plural

_GPUS = frozenset({"cuda", "rocm", "gpu"})

#: The program id of what is not one program: 0 means none to XProf.
_UNKNOWN = 2**31 - 1
_KNOWN = 10_000  # kinds of executions kept


def device_type(run: RunInfo) -> str:
    """What XProf calls the device. It says "TPU Duty Cycle", FLOPS and HBM of each that is not said to be a GPU."""
    kind = run.device_kind or run.platform or "device"
    if run.platform == "tpu":
        return kind
    return f"{kind} (GPU)" if run.platform in _GPUS else f"{kind} (shown as a GPU is)"


def shown_as(run: RunInfo) -> str:
    """Sentences about the words in which XProf speaks of the device."""
    if run.platform == "tpu":
        words = "A recording has no counters of the hardware: utilization of FLOPS, HBM and matrix units is not known."
    else:
        words = (
            f"The device is {run.device_kind or run.platform or 'not known'}: TPU and TensorCore, which XProf says of "
            "whatever it counts steps of, mean it. Precisions are not known."
        )
    return f"{words} Input is idle time in which the next batch was on its way. Compiling is part of idle."


class DeviceLanes:
    """Draws one device. ``device_type`` is what XProf shows as the kind of hardware."""

    def __init__(self, id: int, device: int, device_type: str, steps: AveragedSteps, names: Names) -> None:
        self.plane = Plane(id, f"/device:TPU:{device}", {"device_type_string": device_type})
        self._steps = steps
        self._names = names
        self._known: dict[tuple[int, int, str, int, str], tuple[int, int, bytes]] = {}
        line = self.plane.line(1, "Steps")
        self._modules = self.plane.line(2, "XLA Modules")
        self._ops = self.plane.line(3, "XLA Ops")
        for step in steps.steps:
            stats = self.plane.stats({"step_num": step.num, "_ct": STEP, "_c": steps.ids[step.start]})
            line.add(self.plane.name(step.name), step.start, step.end - step.start, stats)

    def draw(self, e: Execution) -> None:
        """Draw one execution."""
        key = (e.program, e.stack, e.trigger, e.summed, e.error)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            known = self._known[key] = self._kind(e)
        module, op, stats = known
        if not e.summed:
            stats += self.plane.stats({"run_id": e.seq, "flow": flow_in(e.seq)})
        self._modules.add(module, e.start, e.end - e.start, stats)
        for start, end in self._steps.cut(e.start, e.end):
            self._ops.add(op, start, end - start)

    def _kind(self, e: Execution) -> tuple[int, int, bytes]:
        """The names and the stats that such an execution shares with others."""
        line = self._names.line(e.stack)
        stats: dict[str, Value] = {"line": line.where, "code": line.code} if line.where else {}
        if e.summed:
            stats["summed"] = f"{plural(e.summed, 'execution')} of a step recorded as sums: when is not known"
        else:
            stats["trigger"] = e.trigger
        if e.error:
            stats["error"] = e.error
        module = self.plane.name(f"program_{e.program}({e.program})" if e.program else "summed executions")
        return module, self._op(e), self.plane.stats(stats)

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


def gaps_plane(id: int, device: int, executions: Sequence[Execution], blame: Blame, names: Names) -> Plane:
    """The idle gaps of a device, named after their causes, on a plane that XProf draws and does not count."""
    plane = Plane(id, f"/device:CUSTOM:idle gaps of device {device}")
    line = plane.line(1, "idle")
    summed = plane.stats({"summed": "divided among the causes as the gaps of other steps are"})
    drawn: dict[int, tuple[int, Callable[[Sequence[int]], bytes]]] = {}
    for e, following in pairwise((*executions, None)):
        if e is not None and e.end < e.until:
            line.add(plane.name("idle: in a step recorded as sums"), e.end, e.until - e.end, summed)
        if e is None or following is None or e.until >= following.start:
            continue
        gap = blame.gap(e.until, following.start)
        if gap is None:
            line.add(plane.name("idle: what the host did is not known"), e.until, following.start - e.until)
            continue
        shape, ns = gap
        known = drawn.get(shape)
        if known is None:
            known = drawn[shape] = _shape(plane, shape, blame, names)
        line.add(known[0], e.until, following.start - e.until, known[1](ns))
    return plane


def _shape(plane: Plane, shape: int, blame: Blame, names: Names) -> tuple[int, Callable[[Sequence[int]], bytes]]:
    """The name of the gaps of a shape, and what makes the stats of one from the ns of its causes."""
    causes = [blame.name(cause) for cause in blame.shapes[shape][0]]
    shown = names.show(blame.place(shape))
    where = plane.stats({name: text for name, text in (("line", shown.where), ("code", shown.code)) if text})
    each = list(dict.fromkeys(causes))  # what has one name counts together
    encode = plane.numbers([f"ms of {cause}" for cause in each])

    def stats(ns: Sequence[int]) -> bytes:
        if len(each) == len(causes):
            return encode([one / 1e6 for one in ns]) + where
        sums = dict.fromkeys(each, 0)
        for cause, one in zip(causes, ns, strict=True):
            sums[cause] += one
        return encode([one / 1e6 for one in sums.values()]) + where

    return plane.name(f"idle: {causes[0]}"), stats
