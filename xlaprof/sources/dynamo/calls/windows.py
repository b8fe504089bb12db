"""Which calls are timed: windows of calls that follow each other, and pauses between them.

A window begins at any call of a step as likely as at any other, for how many calls are left out before it is drawn by
lot. One that began by the clock would mostly begin behind what takes longest in a step, and seldom hold it. Where calls
are rare there is no pause. Where they come fast, to count them costs too much: there the clock ends the pause, and the
lot says how many further calls are left out.
"""

from __future__ import annotations

from collections.abc import Callable

CALLS = 256  # in a row that are timed, at least, before a pause
LONGEST_NS = 1_000_000_000  # of a window: a program that is killed loses no more
#: from the begin of such calls to that of the next, on average; of a long run this share of its time so far
EVERY_NS, PART = 1_000_000_000, 64
FAST_NS = 200_000  # from the begin of a call to that of the next
FURTHER = 1_024  # calls that are left out at most behind a pause by the clock: a step has fewer
MOST = 400  # pauses by the clock: Python looks up no more attributes fast of a class that was changed 1,000 times
OVERDUE = 8  # a pause that lasts so many times as long as it should is over: calls have become rarer
GLANCE = 16  # calls in a pause from one look at the clock to the next


class Pauses:
    """The pauses of one recording, which began at ``begun``. ``draw()`` is any number from 0 to 1. Moments in ns."""

    def __init__(self, begun: int, draw: Callable[[], float]) -> None:
        self._begun = begun
        self._draw = draw
        self._first = self._calls = 0  # in a row so far: when they began, and how many they are
        self._every = EVERY_NS
        self._by_clock = 0  # pauses
        self.by_clock = False  # so the pause is better ended, at
        self.back = 0
        self.until = 0  # moment at which the pause is over, however many calls are left
        self.rate = 0.0  # calls in a ns, in the last window

    def after(self, first: int, now: int, calls: int) -> int:
        """Calls to leave out after a window of so many, which began at ``first`` and ends ``now``; 0: no pause."""
        self._first = self._first if self._calls else first
        self._calls += calls
        if self._calls < CALLS:
            return 0
        self._every = max(EVERY_NS, (now - self._begun) // PART)
        took, calls = max(1, now - self._first), self._calls
        self._calls = 0
        self.rate = calls / took
        rest = max(0, self._every - took)
        self.by_clock = took < FAST_NS * calls and self._by_clock < MOST
        self.back, self.until = now + rest, now + OVERDUE * self._every
        return int(rest * self.rate * 2 * self._draw())

    def further(self, now: int) -> int:
        """Calls to leave out behind a pause that the clock has ended ``now``."""
        self._by_clock += 1
        self.until = now + OVERDUE * self._every
        return int(FURTHER * self._draw())
