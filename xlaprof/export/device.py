"""The device in a profile: when each execution ran, the steps it is measured by, and the gaps between.

XProf computes its numbers from three lines of a plane named like a TPU core, and takes no other shape of plane for
a device whose idle time is worth stating:

``Steps``        one event per step. Their mean is XProf's average step time.
``XLA Modules``  the executions.
``XLA Ops``      the time the device was busy. Idle is what they leave of the stretch from the first to the last
                 event of ``Steps`` and ``XLA Ops``.

So ``Steps`` holds the steps that the report's median is taken over, as far as the device's first and last execution
enclose them: XProf's window is then the report's, from the first execution to the last. An execution is one event of
``XLA Ops``, for what happened inside a program is not known to a run.log; where it crosses the border of a step it is
cut there, because XProf counts an operation wholly to the step it begins in.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from xlaprof.export.host import FLOW
from xlaprof.export.names import Names
from xlaprof.export.timeline import Execution, StepSpan
from xlaprof.export.xplane import Plane, Value

Interval = tuple[int, int]


class StepTable:
    """The steps that XProf averages: sorted, apart from each other, each with a number of its own."""

    def __init__(self, steps: Iterable[StepSpan]) -> None:
        self.steps: list[StepSpan] = []
        for step in sorted(steps, key=lambda s: (s.start, -s.end)):
            if not self.steps or step.start >= self.steps[-1].end:
                self.steps.append(step)
        self._starts = [s.start for s in self.steps]
        self._borders = sorted({s.start for s in self.steps} | {s.end for s in self.steps})
        nums = [s.num for s in self.steps]
        rising = all(a < b for a, b in pairwise(nums))
        # The program's numbers, where they can be: XProf knows a step by its number alone.
        self.numbers = nums if rising and nums and nums[0] >= 0 and nums[-1] < 2**31 else list(range(1, len(nums) + 1))

    @classmethod
    def averaged(cls, steps: Sequence[StepSpan], executions: Sequence[Execution]) -> StepTable:
        """The steps of the name with the most time, but the first (it compiles) and those that ``executions`` do not
        enclose. Where that leaves none, the condition is dropped."""
        total: dict[str, int] = defaultdict(int)
        for step in steps:
            total[step.name] += step.end - step.start
        if not total:
            return cls(())
        main = max(total, key=lambda name: total[name])
        mine = [step for step in steps if step.name == main]
        enclosed = [s for s in mine if executions and executions[0].start <= s.start and s.end <= executions[-1].until]
        return cls([s for s in enclosed if s is not mine[0]] or mine[1:] or mine)

    def cut(self, start: int, end: int) -> Iterator[Interval]:
        """``[start, end)`` cut at every border of a step."""
        for border in self._borders[bisect_right(self._borders, start) : bisect_left(self._borders, end)]:
            yield start, border
            start = border
        yield start, end

    def number(self, t: int) -> int | None:
        """The number of the step that moment ``t`` lies in."""
        i = bisect_right(self._starts, t) - 1
        return self.numbers[i] if i >= 0 and t < self.steps[i].end else None


class DeviceLanes:
    """Draws one device. ``device_type`` is what XProf shows as the kind of hardware."""

    def __init__(self, id: int, device: int, device_type: str, table: StepTable, names: Names) -> None:
        self.plane = Plane(id, f"/device:TPU:{device}", {"device_type_string": device_type})
        self._table = table
        self._names = names
        steps = self.plane.line(1, "Steps")
        self._modules = self.plane.line(2, "XLA Modules")
        self._ops = self.plane.line(3, "XLA Ops")
        for step, number in zip(table.steps, table.numbers, strict=True):
            name = self.plane.name(f"{step.name} {step.num}")
            steps.add(name, step.start, step.end - step.start, {"group_id": number})

    def draw(self, e: Execution) -> None:
        """Draw one execution."""
        number = self._table.number(e.start)
        stats: dict[str, Value] = {} if number is None else {"group_id": number}
        line = self._names.line(e.stack)
        if line.where:
            stats |= {"line": line.where, "code": line.code}
        if e.summed:
            stats["summed"] = f"{e.summed} executions of a step recorded as sums: when in the step is not known"
        else:
            stats |= {"run_id": e.seq, "trigger": e.trigger, "_ct": FLOW, "_c": e.seq}
        if e.error:
            stats["error"] = e.error
        module = self.plane.name(f"program_{e.program}({e.program})" if e.program else "summed executions")
        self._modules.add(module, e.start, e.end - e.start, stats)
        op = self._op(e)
        for start, end in self._table.cut(e.start, e.end):
            number = self._table.number(start)
            self._ops.add(op, start, end - start, None if number is None else {"group_id": number})

    def _op(self, e: Execution) -> int:
        """One name per program and the line whose barrier ran it: XProf's tables have a row for each."""
        where = self._names.line(e.stack).where
        name = f"program {e.program}" if e.program else "summed executions"
        # Without program_id and symbol_id XProf drops an operation from its sums and calls the device all idle.
        stats: dict[str, Value] = {"program_id": e.program, "symbol_id": 1, "hlo_category": "execution"}
        if where:
            name += f" at {where}"
            stats["source"] = where
        return self.plane.name(name, stats=stats)


def gaps_plane(id: int, device: int, executions: Sequence[Execution], causes: Mapping[int, tuple[str, str]]) -> Plane:
    """The idle gaps of a device, on a plane that XProf draws and does not count: idle is not an operation.

    ``causes`` gives what is to blame for the gap that begins at a moment, and its line of code, where known.
    """
    plane = Plane(id, f"/device:CUSTOM:idle gaps of device {device}")
    line = plane.line(1, "idle")
    for e, following in pairwise(executions):
        if e.until < following.start:
            blame, where = causes.get(e.until, ("", ""))
            name = plane.name(f"idle: {blame}" if blame else "idle")
            line.add(name, e.until, following.start - e.until, {"line": where} if where else None)
    return plane
