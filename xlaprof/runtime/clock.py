"""The clock of a recording: how much of the host's time between events was tracing.

Every operation notes the current time. The time between two operations is *tracing* (Python, the program's and ours,
that records operations), or a *hole* if it is long: the host recorded nothing. Whatever has events of its own (reads,
uploads, fallbacks, compilations) is set *aside* and is neither. Tracing is summed up when another event begins.

The time noted by operations is kept in seconds, all others in ns: nothing else in a recording happens as often, and
Python compares floats faster than integers of this size. Up to 26 days of uptime no nanosecond is lost.
"""

from __future__ import annotations

import math
import threading
from time import perf_counter_ns
from typing import Protocol

from xlaprof.recording.stacks import RawFrame

#: a longer time (ns) without a recorded operation is a hole
HOLE_NS = 1_000_000
#: an alarm that is not set
NEVER = math.inf


class Recorded(Protocol):
    """A recorded operation: a node of the trie."""

    @property
    def frames(self) -> tuple[RawFrame, ...]: ...


class Clock:
    """The state of this accounting; one per process, like the recording."""

    __slots__ = ("alarm", "asides", "frames", "ident", "node", "seen", "since", "tid", "tracing")

    seen: float  # s, by time.perf_counter(): the host's last known activity

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """A recording begins."""
        self.tracing = 0  # ns since the last barrier, up to `since`
        self.since = self.last = perf_counter_ns()
        self.alarm = 0.0  # s: when to look at the executions in flight
        self.asides = 0
        self.ident = threading.main_thread().ident or 0  # the thread that was last at a barrier
        self.tid = 1  # its number in the recording
        # Where the host was at its last event, and where the tape was then.
        self.frames: tuple[RawFrame, ...] = ()
        self.node: Recorded | None = None

    @property
    def last(self) -> int:
        """:attr:`seen` in ns."""
        return round(self.seen * 1e9)

    @last.setter
    def last(self, now: int) -> None:
        self.seen = now / 1e9

    def work(self) -> None:
        """Count all the time until now as tracing, however long: the trie grew."""
        now = perf_counter_ns()
        self.tracing += now - self.since
        self.since = now
        self.seen = now / 1e9

    def leave(self, frames: tuple[RawFrame, ...], node: Recorded | None) -> None:
        """The host continues from ``frames``, after an event."""
        self.since = now = perf_counter_ns()
        self.seen = now / 1e9
        self.frames = frames
        self.node = node

    def take_tracing(self) -> int:
        """ns of tracing since the last call."""
        spent, self.tracing = self.tracing, 0
        return spent


clock = Clock()


class aside:  # used like a function
    """Within, time is not tracing."""

    __slots__ = ()

    def __enter__(self) -> None:
        if not clock.asides:
            clock.work()
        clock.asides += 1

    def __exit__(self, *_: object) -> None:
        clock.asides -= 1
        clock.tracing += max(0, clock.last - clock.since)  # another thread's tracing, up to its last operation
        clock.since = clock.last = perf_counter_ns()
