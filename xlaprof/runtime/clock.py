"""The clock of a recording: how much of the host's time between events was tracing.

Every operation notes the moment. The time from one to the next is *tracing* (the program's Python and ours, recording
operations) unless it is long, then it is a *hole*: the host recorded nothing. What has events of its own (reads,
uploads, fallbacks, compilations) is set *aside* and is neither. Tracing is summed where something else begins.

That moment alone is kept in seconds: a recording does nothing as often, and Python compares floats faster than integers
of this size. In 26 days of uptime no nanosecond is lost.
"""

from __future__ import annotations

import math
import threading
from time import perf_counter_ns
from typing import Protocol

from xlaprof.recording.stacks import RawFrame

#: ns without a recorded operation from which on it is a hole
HOLE_NS = 1_000_000
#: an alarm that is not set
NEVER = math.inf


class Recorded(Protocol):
    """A recorded operation: a node of the trie."""

    @property
    def frames(self) -> tuple[RawFrame, ...]: ...


class Clock:
    """The state of that bookkeeping; one per process, like the recording."""

    __slots__ = ("alarm", "asides", "frames", "ident", "node", "seen", "since", "tid", "tracing")

    seen: float  # s, by time.perf_counter(): when the host was last seen to do something

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """A recording begins."""
        self.tracing = 0  # ns since the barrier before, up to
        self.since = self.last = perf_counter_ns()
        self.alarm = 0.0  # s: when to look at what is on its way to the device
        self.asides = 0
        self.ident = threading.main_thread().ident or 0  # of the thread that was last at a barrier, and
        self.tid = 1  # the recording's number for it
        # Where the host was when it last did something that has an event, and where the tape stood then.
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
        """All the time until now was tracing, however long: the trie grew."""
        now = perf_counter_ns()
        self.tracing += now - self.since
        self.since = now
        self.seen = now / 1e9

    def leave(self, frames: tuple[RawFrame, ...], node: Recorded | None) -> None:
        """The host goes on from ``frames``, after something that has an event of its own."""
        self.since = now = perf_counter_ns()
        self.seen = now / 1e9
        self.frames = frames
        self.node = node

    def take_tracing(self) -> int:
        """ns of tracing since last asked."""
        spent, self.tracing = self.tracing, 0
        return spent


clock = Clock()


class aside:  # used like a function
    """What happens inside is not tracing, though it happens in dispatch."""

    __slots__ = ()

    def __enter__(self) -> None:
        if not clock.asides:
            clock.work()
        clock.asides += 1

    def __exit__(self, *_: object) -> None:
        clock.asides -= 1
        clock.tracing += max(0, clock.last - clock.since)  # of another thread, up to what it recorded last
        clock.since = clock.last = perf_counter_ns()
