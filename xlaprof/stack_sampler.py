"""Looks at what a thread is doing, now and then, while it keeps the device waiting.

Whoever knows that the device is idle asks for a look (:meth:`StackSampler.look`) and is told when to come again: soon
at first, then ever more seldom. Nothing is looked at in gaps shorter than :data:`FIRST_S`. Looks that find the same
are told as one :class:`~xlaprof.events.Sample`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from . import recorder
from .activity import DATA, PYTHON, TORCH, Activity, activity
from .events import Sample
from .stacks import RawFrame, frames_of_thread, looking
from .thread_cpu import Ran, ThreadCpu

#: a gap this long is looked into; then the pauses between looks, the last of which repeats
FIRST_S = 0.005
PAUSES_S = (0.003, 0.004, 0.005, 0.005, 0.005, 0.01, 0.01, 0.02, 0.02, 0.02, 0.05)
#: pauses while the host is busy with what is told otherwise, the last of which repeats
BUSY_S = (0.005, 0.01, 0.02)

#: shares of the time between two looks: from which on it ran, was kept from a processor, or another thread held
#: the interpreter's lock
_RAN, _QUEUED, _HOLDS = 0.7, 0.3, 0.3
#: names of our threads begin so; of the one in which the runtime's loader draws batches from the program's
OURS = "xlaprof "
READER = "xlaprof loader read"
_PLACES = 4_096  # different stacks told whole; from then on their innermost frame
_THREADS = 16  # threads asked whether they hold the interpreter's lock


class Target(NamedTuple):
    """Whom to look at, and what is known of it."""

    ident: int  # threading.get_ident()
    tid: int  # the recording's number for it
    since: int  # ns: when it last did something that is told otherwise
    spine: tuple[RawFrame, ...]  # where that was


class _Books(NamedTuple):
    """What was known of the processor's time at a look."""

    at: int
    main: Ran | None


class StackSampler:
    """The looks into one recording's gaps. Used by one thread, but for :meth:`flush`."""

    def __init__(self, rec: recorder.Recorder, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self.looks = 0
        self._rec = rec
        self._now = now
        self._lock = threading.Lock()
        self._pending: Sample | None = None
        self._until = 0  # ns: end of what was told or is pending
        self._looks_here = 0  # into the present gap
        self._busy = 0  # times in a row there was nothing to look at
        self._books: _Books | None = None
        self._main: tuple[int, ThreadCpu] | None = None
        self._others: dict[int, tuple[ThreadCpu, Ran | None]] = {}
        self._known: set[tuple[RawFrame, ...]] = set()

    def idle_again(self) -> float:
        """The device has just become idle: seconds until the first look."""
        looked, self._looks_here, self._busy = self._looks_here, 0, 0
        # where gaps are long the next one is likely to be: then its first look can tell how the thread ran
        self._books = self._ask(self._now(), self._main[0]) if looked and self._main is not None else None
        return FIRST_S

    def look(self, target: Target, idle_since: int) -> float:
        """Look at the thread, which has kept the device waiting since ``idle_since``; seconds until the next look."""
        now = self._now()
        since = max(target.since, idle_since)
        if now - since < FIRST_S * 1e9 * 0.8:
            return self._come_again(max(FIRST_S - (now - since) / 1e9, 0.001))
        with looking:
            frame = sys._current_frames().get(target.ident)
            seen = activity(frame, target.spine) if frame is not None else None
            del frame
        if seen is None or not seen.frames:
            return self._come_again(0.0)
        self.looks += 1
        self._busy = 0
        begin = max(since, self._until)
        books = self._ask(now, target.ident)
        before, self._books = self._books, books
        if before is not None and now - before.at > 2 * (now - since):  # it was busy for most of the time since then
            before = None
        if begin < now:
            self._tell(begin, now, target.tid, seen, *self._judge(seen, target.ident, before, books))
        self._looks_here += 1
        return PAUSES_S[min(self._looks_here, len(PAUSES_S)) - 1]

    def flush(self) -> None:
        """Tell what was found so far."""
        with self._lock:
            pending, self._pending = self._pending, None
        if pending is not None:
            self._rec.emit(pending)

    def close(self) -> None:
        self.flush()
        if self._main is not None:
            self._main[1].close()
        for books, _ in self._others.values():
            books.close()
        self._main, self._others = None, {}

    def _come_again(self, least: float) -> float:
        """There is nothing to look at: the host is busy with what is told otherwise."""
        self.flush()
        self._books = None
        pause = max(least, BUSY_S[min(self._busy, len(BUSY_S) - 1)])
        self._busy += 1
        self._looks_here = 0
        return pause

    # -- how it ran

    def _ask(self, now: int, ident: int) -> _Books:
        if self._main is None or self._main[0] != ident:
            if self._main is not None:
                self._main[1].close()
            native = next((t.native_id for t in threading.enumerate() if t.ident == ident), None)
            self._main = (ident, ThreadCpu(native))
        return _Books(now, self._main[1].read())

    def _judge(self, seen: Activity, ident: int, before: _Books | None, books: _Books) -> tuple[str, float, str, int]:
        """``(state, its share of the time, holder, where)``; the rest of the time the thread ran."""
        if seen.kind not in (PYTHON, TORCH):
            return seen.kind, 1.0, *(self._reader() if seen.kind == DATA and seen.asked_to_wait else ("", 0))
        torch = seen.kind == TORCH
        if before is None or before.main is None or books.main is None:
            assert self._main is not None
            asleep = seen.asked_to_wait or self._main[1].sleeps_elsewhere()
            return ("torch" if torch else "wait" if asleep else ""), 1.0, "", 0
        span = max(1, books.at - before.at)
        ran = (books.main.running - before.main.running) / span
        queued = (books.main.queued - before.main.queued) / span
        if ran >= _RAN:
            return seen.kind, 1.0, "", 0
        if queued >= _QUEUED:
            return "cpu", min(queued, 1.0), "", 0
        assert self._main is not None
        if not seen.asked_to_wait and not self._main[1].sleeps_elsewhere():
            asked_before = bool(self._others)
            held = self._holder(ident, span)
            if held is not None:
                return "gil", 1.0 - min(ran, 1.0), *held
            if not asked_before and not torch:
                return "", 1.0, "", 0  # who ran is known from the next look on
        return ("wait" if ran < _RAN / 2 and not torch else seen.kind), 1.0, "", 0

    def _holder(self, ident: int, span: int) -> tuple[str, int] | None:
        """The other thread of Python that ran most since it was last asked, if that is much; its name and place.

        Ready to run and kept from it counts too: it has the lock all the while.
        """
        own = threading.get_ident()
        best: threading.Thread | None = None
        most = _HOLDS * span
        for thread in threading.enumerate()[:_THREADS]:
            if thread.ident in (ident, own, None) or thread.native_id is None or thread.name.startswith(OURS):
                continue
            clock, before = self._others.get(thread.native_id) or (ThreadCpu(thread.native_id), None)
            now = clock.read()
            self._others[thread.native_id] = (clock, now)
            if now is not None and before is not None and sum(now) - sum(before) > most:
                best, most = thread, sum(now) - sum(before)
        if len(self._others) > 4 * _THREADS:
            for clock, _ in self._others.values():
                clock.close()
            self._others.clear()
        if best is None or best.ident is None:
            return None
        return best.name, self._place(frames_of_thread(best.ident))

    def _reader(self) -> tuple[str, int]:
        """The thread of the runtime's loader that reads for the one that waits; its name and place."""
        reader = next((thread for thread in threading.enumerate() if thread.name == READER), None)
        if reader is None or reader.ident is None:
            return "", 0
        return reader.name, self._place(frames_of_thread(reader.ident))

    # -- telling

    def _place(self, frames: tuple[RawFrame, ...]) -> int:
        if frames not in self._known:
            if len(self._known) >= _PLACES:
                frames = frames[:1]
            else:
                self._known.add(frames)
        return self._rec.stack(frames)

    def _tell(
        self, begin: int, end: int, tid: int, seen: Activity, state: str, share: float, holder: str, at: int
    ) -> None:
        stack = self._place(seen.frames)
        cut = end - round((end - begin) * share)
        if cut > begin:  # when in that time it ran is not known; how long is
            self._add(begin, cut, stack, PYTHON, tid, "", 0)
        self._add(cut, end, stack, state, tid, holder, at)
        self._until = end

    def _add(self, begin: int, end: int, stack: int, state: str, tid: int, holder: str, at: int) -> None:
        told: Any = None
        with self._lock:
            one = self._pending
            if one is not None and one.t + one.dur == begin and (one.stack, one.tid) == (stack, tid):
                if not one.state:  # it was not known how it ran when it was first looked at: as it did since
                    one = Sample(one.t, one.dur, stack, state, tid, holder, at)
                if (one.state, one.holder, one.at) == (state, holder, at):
                    self._pending = Sample(one.t, end - one.t, stack, state, tid, holder, at)
                    return
            told, self._pending = self._pending, Sample(begin, end - begin, stack, state, tid, holder, at)
        if told is not None:
            self._rec.emit(told)
