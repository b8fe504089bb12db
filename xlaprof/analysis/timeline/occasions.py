"""The steps in which something happened, in bounded memory: a habit is one run of steps however long it lasts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from .rhythm import Rhythm

_RUNS = 64  # runs kept; with more there is no rhythm
_EXPANDED = 50_000  # steps expanded for the rhythm of several together


class Occasions(msgspec.Struct):
    """Ordinals of steps, ascending, as runs of even distance: (first, distance, number)."""

    count: int = 0  # occasions: several may be in one step
    missed: int = 0  # steps beyond the kept runs
    expected: int = -1  # the step that would lengthen the last run; -1: none
    runs: list[list[int]] = msgspec.field(default_factory=list)

    def add(self, step: int) -> None:
        """It happened in the step with this ordinal; below 0: in none. Constant cost."""
        self.count += 1
        if step < 0:
            return
        runs = self.runs
        if step == self.expected:
            run = runs[-1]
            run[2] += 1
            self.expected = step + run[1]
            return
        if not runs:
            runs.append([step, 0, 1])
            return
        run = runs[-1]
        first, distance, number = run
        gap = step - (first + distance * (number - 1))
        if gap == 0:
            return
        if number == 1 and gap > 0:
            run[1], run[2] = gap, 2
            self.expected = step + gap
        elif len(runs) < _RUNS:
            runs.append([step, 0, 1])
            self.expected = -1
        else:
            self.missed += 1

    def add_all(self, steps: Sequence[int]) -> None:
        """Like :meth:`add` for each of ``steps``; constant cost for a habit that goes on."""
        if self.expected >= 0:
            run = self.runs[-1]
            distance = run[1]
            ahead = list(dict.fromkeys(steps))  # several in one step lengthen no run
            if ahead and ahead[0] == self.expected - distance:  # the last step of the run
                del ahead[0]
            beyond = self.expected + distance * len(ahead)
            if ahead == list(range(self.expected, beyond, distance)) and sorted(steps) == steps:
                self.count += len(steps)
                run[2] += len(ahead)
                self.expected = beyond
                return
        if len(self.runs) == _RUNS and steps and min(steps) > self.expected >= 0:  # no run is lengthened any more
            self.count += len(steps)
            self.missed += len(steps)
            return
        for step in steps:
            self.add(step)

    def merge(self, other: Occasions) -> None:
        """Add another rank's or segment's; the steps of the one with more of them are kept."""
        self.count += other.count
        if other.steps > self.steps:
            self.runs = [run.copy() for run in other.runs]
            self.missed, self.expected = other.missed, other.expected

    def copy(self) -> Occasions:
        twin = Occasions()
        twin.merge(self)
        return twin

    @property
    def steps(self) -> int:
        return sum(number for _, _, number in self.runs) + self.missed


def rhythm(several: Iterable[Occasions]) -> Rhythm:
    """How often any of ``several`` happened: each step counts once."""
    runs = [run for one in several for run in one.runs]
    if len(runs) == 1:  # one habit, however long
        return Rhythm.of(_expanded(runs[0], _EXPANDED))
    steps: set[int] = set()
    for run in runs:
        steps.update(_expanded(run, _EXPANDED - len(steps)))
    return Rhythm.of(sorted(steps))


def _expanded(run: list[int], most: int) -> range:
    """The first steps of a run, at most so many."""
    first, distance, number = run
    distance = max(distance, 1)  # of a single step there is none
    return range(first, first + distance * min(number, most), distance)
