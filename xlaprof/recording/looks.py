"""What the main thread does, looked up a few times a second all along: what it imports, or at which line it runs.

This names the time that nothing else is recorded of: before the first program, and where no device is. It is coarse,
and costs little: a look at sixty frames takes 0.1 ms. A share of the run is told as well by a thousand looks as by ten
thousand, so they come more seldom the longer it goes on. Between two that find the same, the thread did that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple

from xlaprof.events import Event, Look

from .activity import IMPORT, IMPORTS, activity, unchosen_moment
from .stacks import (
    WAITS_FOR_BACKWARD,
    RawFrame,
    frames_of_thread,
    looking,
    running,
    shown_file,
    threads,
    user_frames_of,
)

EVERY_NS = 90_000_000  # between two looks, at least; later this part of the run so far, half a second at most
_PART, _SELDOM_NS = 400, 500_000_000
_LONGEST_NS = 1_000_000_000  # of one event: a killed program loses no more
#: the state of a thread that waits for the device, as a source found that watches it; all other looks are those here
WAITS = "device"
#: frames within which the time is recorded as that of a compile
_COMPILES = "torch/_dynamo/convert_frame.py"
#: compile the backward graph at the first backward(), where no frame is Dynamo's, and tune a kernel when it first runs
_INDUCTOR = frozenset({"compile_fx_inner", "benchmark_all_configs", "coordinate_descent_tuning"})


class _Seen(NamedTuple):
    state: str
    frames: tuple[RawFrame, ...]


class Looks:
    """The looks of one recording. :meth:`look` is called by the writer's thread, whenever that wakes."""

    def __init__(self, emit: Callable[[Event], None], stack: Callable[[tuple[RawFrame, ...]], int]) -> None:
        self._emit = emit
        self._stack = stack
        self._main = threading.main_thread().ident or 0
        self._begun = self._since = self._at = time.perf_counter_ns()
        self._seen: _Seen | None = None

    def look(self) -> None:
        now = time.perf_counter_ns()
        if now - self._at < max(EVERY_NS, min((now - self._begun) // _PART, _SELDOM_NS)):
            return
        unchosen_moment()
        with looking:
            stack = running(self._main)
            seen = _what(stack[0], self._main) if stack else None
            # on a GPU another thread goes through the backward pass, and compiles there
            if seen is not None and stack[0].f_code.co_name == WAITS_FOR_BACKWARD:
                seen = None if any(map(_compiling, threads())) else seen
            del stack
        if seen != self._seen:
            self.end((self._at + now) // 2)  # it changed in between
            self._seen = seen
        elif now - self._since >= _LONGEST_NS:
            self.end(now)
        self._at = now

    def end(self, now: int) -> None:
        """Record what was seen until ``now``."""
        seen, since, self._since = self._seen, self._since, now
        if seen is not None and now > since:
            self._emit(Look(since, now - since, self._stack(seen.frames), seen.state))


def _compiling(ident: int) -> bool:
    """Whether a thread compiles a backward graph."""
    return any(frame.f_code.co_name in _INDUCTOR for frame in running(ident))


def _what(innermost: FrameType, main: int) -> _Seen | None:
    """None where the time has an event of its own: in xlaprof, in a compile. The wait for a batch has one, and a state
    here that keeps it apart: the look knows the line that makes the batch."""
    importing = users = False
    frame: FrameType | None = innermost
    while frame is not None:
        file = frame.f_code.co_filename
        if file == IMPORTS:
            importing = importing or not users
        elif (name := frame.f_code.co_name) in _INDUCTOR or (file.endswith(_COMPILES) and name != "<module>"):
            return None  # a <module> is being imported
        users = users or bool(shown_file(frame))
        frame = frame.f_back
    if importing:
        return _Seen(IMPORT, user_frames_of(innermost)[:1])
    doing = activity(innermost, ())
    if doing is None:
        return None
    return _Seen(doing.kind, doing.frames or frames_of_thread(main))  # a library's by itself, or at exit
