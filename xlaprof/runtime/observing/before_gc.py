"""Lets the watcher run before a full garbage collection, which holds the interpreter's lock to its end.

Executions that end during the collection are stamped only after it, so the device would seem busy while it idles. So
while a recording is on and something is in flight, a collection first releases the lock, for at most a hundredth of the
time of the last one. It only sleeps, because it may interrupt any code, whatever locks that holds.
"""

from __future__ import annotations

import gc
import time
from typing import Any

from xlaprof.runtime.execution import inflight

#: the wait before a collection is at most the last one's time divided by this
SHARE = 100
_PAUSE_S = 50e-6


class _Pause:
    """The callback, and the time of the last full collection."""

    def __init__(self) -> None:
        self.began = self.took = 0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] != 2:
            return
        now = time.perf_counter_ns()
        if phase == "start":
            self.began = now
            while inflight.busy() and time.perf_counter_ns() < now + self.took // SHARE:
                time.sleep(_PAUSE_S)
        elif self.began:
            self.took = now - self.began


_pause = _Pause()


def start() -> None:
    """A recording begins."""
    if _pause not in gc.callbacks:
        _pause.began = _pause.took = 0
        gc.callbacks.append(_pause)


def stop() -> None:
    """A recording ends."""
    if _pause in gc.callbacks:
        gc.callbacks.remove(_pause)
