"""When a device was busy and when it was idle."""

from __future__ import annotations

#: (start, end): a stretch in which a device ran nothing, between two executions. Nanoseconds.
IdleStretch = tuple[int, int]


class DeviceTimeline:
    """Executions of one device in, busy and idle stretches out.

    The window runs from the first execution's start to the last one's end. Within it busy is the union of the
    executions and idle the rest, so ``busy + idle + told == last - first`` always holds (``told``: the steps known
    only as digests, whose busy and idle time are sums without a when). What arrives after its time was settled
    counts only from there on.
    """

    __slots__ = ("busy", "digest_idle", "first", "idle", "last", "pending")

    def __init__(self) -> None:
        self.pending: list[tuple[int, int, int]] = []  # start, end, busy ns (-1: all of it) not settled yet
        self.first: int | None = None
        self.last = 0  # end of what is settled
        self.busy = 0
        self.idle = 0  # in stretches with a when
        self.digest_idle = 0  # inside digests

    def add(self, start: int, end: int, busy: int = -1) -> None:
        self.pending.append((start, end, busy))

    def floor(self) -> int:
        """The moment before which nothing is left to settle: what the host did after it is still needed."""
        if self.first is not None:
            return self.last
        return min((start for start, _, _ in self.pending), default=0)

    def give_up(self, horizon: int) -> list[IdleStretch]:
        """Call everything up to ``horizon`` idle that no execution was reported for."""
        if self.first is None or horizon <= self.last:
            return []
        quiet = [(self.last, horizon)]
        self.idle += horizon - self.last
        self.last = horizon
        return quiet

    def settle(self, horizon: int) -> tuple[list[IdleStretch], list[tuple[int, int]], list[int]]:
        """Take what ended by ``horizon``: the idle stretches, the busy stretches, and the idle time of each digest."""
        pending = self.pending
        pending.sort()
        quiet: list[IdleStretch] = []
        busy: list[tuple[int, int]] = []
        digests: list[int] = []
        if self.first is None and pending and pending[0][1] <= horizon:
            self.first = self.last = pending[0][0]
        last = self.last
        taken = 0
        for start, end, told in pending:
            if end > horizon:
                break
            taken += 1
            if start < last:
                start = last
            if end <= start:  # of no length, or told already
                continue
            if start > last:
                quiet.append((last, start))
            last = end
            if told < 0:
                busy.append((start, end))
            else:
                told = min(told, end - start)
                self.busy += told
                digests.append(end - start - told)
        del pending[:taken]
        self.last = last
        self.idle += _length(quiet)
        self.busy += _length(busy)
        self.digest_idle += sum(digests)
        return quiet, busy, digests

    def copy(self) -> DeviceTimeline:
        twin = DeviceTimeline()
        twin.pending = self.pending.copy()
        twin.first, twin.last = self.first, self.last
        twin.busy, twin.idle, twin.digest_idle = self.busy, self.idle, self.digest_idle
        return twin


def _length(stretches: list[tuple[int, int]]) -> int:
    return sum([end - start for start, end in stretches])
