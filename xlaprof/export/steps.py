"""The steps that the figures of a profile are taken over."""

from __future__ import annotations

from bisect import bisect_right
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
        self.ids = step_ids(main)
        self._borders = borders(self.steps)

    def cut(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """``[start, end)`` cut at every border of a step."""
        return cut(self._borders, start, end)


def step_ids(main: Sequence[StepSpan]) -> dict[int, int]:
    """The moment at which a main step begins -> what links its two sides; see :mod:`~xlaprof.export.links`."""
    return {step.start: nth for nth, step in enumerate(main, 1)}


def borders(steps: Sequence[StepSpan]) -> list[int]:
    """Where steps begin and end, in order."""
    return sorted({step.start for step in steps} | {step.end for step in steps})


def cut(at: Sequence[int], start: int, end: int) -> Iterator[tuple[int, int]]:
    """``[start, end)`` cut at every moment of ``at``, which is sorted."""
    nth = bisect_right(at, start)
    while nth < len(at) and at[nth] < end:
        yield start, at[nth]
        start = at[nth]
        nth += 1
    yield start, end
