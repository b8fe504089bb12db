"""How often something happens: every step, every N steps, N times a step, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from operator import sub

import msgspec

from xlaprof.analysis.sums import add_bounded

_GAPS = 16  # different distances kept apart
_MOST = 0.7  # share of the distances that makes a rhythm
_ALL = 0.9  # share of the steps from which on it is in every step: the first may differ


def in_all(steps: int, of: int) -> bool:
    """Whether what comes in so many ``of`` the steps comes in all of them."""
    return steps >= min(_ALL * of, of - 1)


class Rhythm(msgspec.Struct):
    """Distances in steps between the steps in which something happened, counted in bounded memory."""

    count: int = 0
    steps: int = 0  # steps in which it happened
    first: int = -1  # ordinal of the first of them
    last: int = -1  # ordinal of the last
    gaps: dict[int, int] = msgspec.field(default_factory=dict)  # distance in steps -> how often

    def at(self, step: int, count: int = 1) -> None:
        """It happened ``count`` times in the step with this ordinal. Constant cost."""
        self.count += count
        if step < self.last:
            self._join_pieces(step)
        if not self.steps:
            self.first = step
        elif step == self.last:
            return
        else:
            add_bounded(self.gaps, step - self.last, 1, _GAPS)
        self.last = step
        self.steps += 1

    def _join_pieces(self, step: int) -> None:
        """Steps are counted from ``step`` on again: those so far were pieces, of steps that ended before it, as many of
        each as of any other."""
        self.first = self.first * step // (self.last + 1)
        self.steps = min(self.steps, step - self.first)
        self.last = step - 1
        self.gaps = {1: self.steps - 1} if self.steps > 1 else {}

    def at_each(self, first: int, count: int) -> None:
        """Like :meth:`at` for each of ``count`` steps that follow each other, ``first`` the first of them."""
        self.at(first)
        if count > 1:
            self.count += count - 1
            self.steps += count - 1
            add_bounded(self.gaps, 1, count - 1, _GAPS)
            self.last = first + count - 1

    def at_all(self, steps: Sequence[int]) -> None:
        """Like :meth:`at` for each of ``steps``; faster where they are many."""
        if steps and (not self.steps or len(steps) == 1 or steps[0] < self.last):
            self.at(steps[0])
            steps = steps[1:]
        if not steps:
            return
        self.count += len(steps)
        for gap, count in Counter(map(sub, steps, chain((self.last,), steps))).items():  # as they came first
            if gap:
                self.steps += count
                add_bounded(self.gaps, gap, count, _GAPS)
        self.last = steps[-1]

    @classmethod
    def of(cls, steps: Sequence[int]) -> Rhythm:
        """The rhythm of something that happened once in each of these steps, ascending."""
        found = cls()
        found.at_all(steps)
        return found

    def merge(self, other: Rhythm) -> None:
        """Add the occasions of another recording, whose steps are others."""
        self.first = self.first if self.steps else other.first
        self.count += other.count
        self.steps += other.steps
        for gap, count in other.gaps.items():
            add_bounded(self.gaps, gap, count, _GAPS)

    def join(self, other: Rhythm) -> None:
        """Add the occasions of something else in the same steps, such as another operator of the same line."""
        steps, first, last = max(self.steps, other.steps), min(self.first, other.first), max(self.last, other.last)
        if (self.steps, self.first, self.last) == (other.steps, other.first, other.last):
            self.count += other.count
        elif self.steps:
            self.merge(other)
            self.first, self.last = first, last
            self.steps = min(self.steps, max(steps, last - first + 1))
        else:
            self.merge(other)
            self.last = other.last

    @property
    def returns(self) -> int:
        """How often it happened again after steps in which it did not."""
        return max(0, self.steps - 1 - self.gaps.get(1, 0))

    @property
    def every(self) -> int:
        """The distance in steps, where it is mostly the same; 0 where it is not, or not known."""
        if not self.gaps:
            return 0
        gap = max(self.gaps, key=lambda gap: self.gaps[gap])
        return gap if gap > 0 and self.gaps[gap] >= _MOST * (self.steps - 1) else 0

    def text(self, of: int) -> str:
        """ "every step", "3 times a step", "every 10 steps", "4 times after every 10 steps", "once"; "": unknown.

        ``of``: how many steps there were. Where it stopped halfway: "in 20 of 40 steps".
        """
        if not self.count:
            return ""
        if self.count == 1:
            return "once"
        if self.steps < 2:
            return f"{self.count:,} times {'after the last step' if 0 < of <= self.first else 'in one step'}"
        each = round(self.count / self.steps)
        every = self.every
        if every == 1 and not in_all(self.steps, of):
            return f"{f'{each:,} times ' if each > 1 else ''}in {self.steps:,} of {of:,} steps"
        if every == 1:
            return "every step" if each <= 1 else f"{each:,} times a step"
        if every:
            return f"every {every:,} steps" if each <= 1 else f"{each:,} times after every {every:,} steps"
        return f"now and then, in {self.steps:,} steps"
