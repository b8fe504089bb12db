"""From changes between busy and idle to the stretches in which a device was busy: a pure function of the changes.

The device is asked every few milliseconds, so a single short stretch or gap has the length of a pause, not its own;
their sums are right. Those that come closer together are told as one: as much busy time as all of them, then a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .poller import PAUSE_NS, Change

#: a stretch that goes on is told in parts no longer than this: a killed program loses no more
LONGEST_NS = 1_000_000_000
#: gaps shorter than this are joined, over no more than that
SHORT_NS, TOGETHER_NS = 5 * PAUSE_NS // 2, 10 * PAUSE_NS


class Stretch(NamedTuple):
    """The device was busy over ``[start, end)``, ns; or as long as that, in several stretches that began there."""

    start: int
    end: int
    runs: int = 1


class _Joined(NamedTuple):
    start: int
    end: int
    busy: int
    runs: int


class Stretches:
    """Of one device."""

    def __init__(self) -> None:
        self.ever = False  # busy
        self._since = 0  # begin of the stretch that goes on, or of the part of it that is not told yet; 0: idle
        self._joined: _Joined | None = None
        self._turns = 0

    def take(self, changes: Iterable[Change], now: int, turns: int = 0) -> Iterator[Stretch]:
        """What is known at ``now``, when the device was asked last; ``turns``: steps of the program that have ended.

        A stretch that goes on is cut where a step has ended: a step's sum of them has its own alone.
        """
        for change in changes:
            if change.busy and not self._since:
                self._since, self.ever = change.at, True
            elif not change.busy and self._since:
                yield from self._add(self._since, change.at)
                self._since = 0
        new, self._turns = turns != self._turns, turns
        if new or (self._since and now - self._since >= LONGEST_NS):
            yield from self.cut(now)
        elif not self._since and self._joined is not None and now - self._joined.end >= SHORT_NS:
            yield from self._told()

    def cut(self, now: int) -> Iterator[Stretch]:
        """All up to ``now``."""
        if self._since and now > self._since:
            yield from self._add(self._since, now)
            self._since = now
        yield from self._told()

    def _add(self, start: int, end: int) -> Iterator[Stretch]:
        before = self._joined
        if before is not None and start - before.end < SHORT_NS and end - before.start <= TOGETHER_NS:
            self._joined = _Joined(before.start, end, before.busy + end - start, before.runs + 1)
        else:
            yield from self._told()
            self._joined = _Joined(start, end, end - start, 1)

    def _told(self) -> Iterator[Stretch]:
        one, self._joined = self._joined, None
        if one is not None:
            yield Stretch(one.start, one.start + one.busy, one.runs)
