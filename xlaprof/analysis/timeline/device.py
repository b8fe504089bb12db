"""When a device was busy and when it was idle."""

from __future__ import annotations

import msgspec

#: (start, end): a stretch in which a device ran nothing, between two executions. Nanoseconds.
IdleStretch = tuple[int, int]


class DeviceTimeline(msgspec.Struct):
    """Executions of one device in, busy and idle stretches out.

    The window runs from the first execution's start to the last one's end. Within it busy is the union of the
    executions and idle the rest, so ``busy + idle + digest_idle == last - first`` always holds (digests of steps give
    busy and idle time as sums, without their moments). An execution that arrives after its time was settled counts only
    from the end of the settled time on.
    """

    #: start, end, busy ns (-1: all), not settled yet
    pending: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    first: int | None = None
    last: int = 0  # end of what is settled
    reached: int = 0  # end of the last execution that took no time that could be seen
    busy: int = 0
    idle: int = 0  # in stretches whose moments are known
    digest_idle: int = 0  # inside digests

    def add(self, start: int, end: int, busy: int = -1) -> None:
        self.pending.append((start, end, busy))

    def floor(self) -> int:
        """The moment before which everything is settled: host time after it is still needed."""
        if self.first is not None:
            return self.last
        return min((start for start, _, _ in self.pending), default=0)

    def begin(self) -> int:
        """When the first execution started."""
        return self.first if self.first is not None else min((start for start, _, _ in self.pending), default=0)

    def give_up(self, horizon: int) -> list[IdleStretch]:
        """Count all time up to ``horizon`` without a reported execution as idle."""
        if self.first is None or horizon <= self.last:
            return []
        quiet = [(self.last, horizon)]
        self.idle += horizon - self.last
        self.last = horizon
        return quiet

    def settle(self, horizon: int, final: bool = False) -> tuple[list[IdleStretch], list[tuple[int, int]]]:
        """Take what ended by ``horizon``: the idle stretches and the busy ones, digests apart.

        ``final``: nothing comes after it, and the window ends with the last execution, however short.
        """
        pending = self.pending
        pending.sort()
        quiet: list[IdleStretch] = []
        ran: list[tuple[int, int]] = []
        if self.first is None and pending and pending[0][1] <= horizon:
            self.first = self.last = pending[0][0]
        last = self.last
        taken = 0
        for start, end, busy in pending:
            if end > horizon:
                break
            taken += 1
            if end <= start:
                self.reached = max(self.reached, end)
            if start < last:
                start = last
            if end <= start:  # of no length, or covered by executions before it
                continue
            if start > last:
                quiet.append((last, start))
            last = end
            if busy < 0:
                ran.append((start, end))
            else:
                busy = min(busy, end - start)
                self.busy += busy
                self.digest_idle += end - start - busy
        del pending[:taken]
        if final and self.reached > last:
            quiet.append((last, self.reached))
            last = self.reached
        self.last = last
        self.idle += _length(quiet)
        self.busy += _length(ran)
        return quiet, ran


def _length(stretches: list[tuple[int, int]]) -> int:
    return sum([end - start for start, end in stretches])
