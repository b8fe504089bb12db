"""The steps that the figures of a profile are taken over."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from xlaprof.export.timeline import Execution, StepSpan


def main_steps(steps: Iterable[StepSpan]) -> list[StepSpan]:
    """The steps of the name with most time, first steps (they compile) apart, as the report ranks them.

    Sorted; none is empty or overlaps the one before it.
    """
    named: dict[str, list[StepSpan]] = defaultdict(list)
    for step in sorted(steps, key=lambda s: (s.start, -s.end)):
        mine = named[step.name]
        if step.end > step.start and (not mine or step.start >= mine[-1].end):
            mine.append(step)
    return max(named.values(), key=lambda mine: sum(s.end - s.start for s in mine[1:] or mine), default=[])


class AveragedSteps:
    """The main steps between the first and the last execution of one device, without the first step, which compiles;
    all main steps where that leaves none.
    """

    def __init__(self, main: Sequence[StepSpan], executions: Sequence[Execution]) -> None:
        start, end = (executions[0].start, executions[-1].until) if executions else (0, 0)
        self.steps = [s for s in main[1:] if start <= s.start and s.end <= end] or main[1:] or main
        self._borders = sorted({s.start for s in self.steps} | {s.end for s in self.steps})

    def cut(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """``[start, end)`` cut at every border of a step."""
        for border in self._borders[bisect_right(self._borders, start) : bisect_left(self._borders, end)]:
            yield start, border
            start = border
        yield start, end
