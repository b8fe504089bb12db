"""Lets the watcher run before a full garbage collection, which holds the interpreter's lock to its end.

What the device finishes meanwhile could only be stamped afterwards, and the device, idle all the while, would seem to
have been busy. So while a recording is on, a collection that finds something on its way first lets go of the lock, for
a hundredth at most of what the last one took. It only sleeps: it may interrupt this module's neighbours anywhere, with
their locks taken.
"""

from __future__ import annotations

import gc
import time
from typing import Any

from xlaprof.runtime.execution import inflight

#: a collection holds the lock for a hundred times as long as is waited before it, at least
SHARE = 100
_PAUSE_S = 50e-6


class _Pause:
    """The callback, and what it remembers of the last full collection."""

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
    """It is over."""
    if _pause in gc.callbacks:
        gc.callbacks.remove(_pause)
