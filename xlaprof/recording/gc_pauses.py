"""Python's garbage collections while a recording is on: counted, and long ones recorded."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

from xlaprof.events import Gc

from .stacks import is_users, user_frames

if TYPE_CHECKING:
    from collections.abc import Callable

    from xlaprof.events import Event

    from .intern import Interner

PAUSE_NS = 500_000  # a shorter one is counted only


class GcPauses:
    """Attached from :meth:`attach` to :meth:`detach`."""

    def __init__(self, emit: Callable[[Event], None], interner: Interner) -> None:
        self._emit, self._interner = emit, interner
        self._began = self._count = self._ns = 0

    def attach(self) -> None:
        gc.callbacks.append(self._called)

    def detach(self) -> None:
        if self._called in gc.callbacks:
            gc.callbacks.remove(self._called)

    def counters(self) -> tuple[dict[str, int], dict[str, float]]:
        return {"GarbageCollection": self._count}, {"GarbageCollection": self._ns / 1e9}

    def _called(self, phase: str, info: dict[str, int]) -> None:
        now = time.perf_counter_ns()
        if phase == "start":
            self._began = now
            return
        if not self._began:  # it began before the recording did
            return
        began, self._began = self._began, 0
        dur = now - began
        self._count += 1
        self._ns += dur
        if dur >= PAUSE_NS:
            frames = user_frames()
            # a collection in a thread without the program's lines (ours, say) has no line
            place = self._interner.stack(frames) if is_users(frames) else 0
            self._emit(Gc(began, dur, info["generation"], info["collected"], self._interner.thread(), place))
