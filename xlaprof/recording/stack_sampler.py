"""Looks at what a thread is doing, now and then, while it keeps the device waiting.

Whoever knows that the device is idle asks for a look (:meth:`StackSampler.look`) and is told when to come again: soon
at first, then ever more seldom. Gaps shorter than :data:`FIRST_S` are looked at now and then: what comes every step
is seen in some. Looks that find the same are told as one :class:`~xlaprof.events.Sample`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from xlaprof.events import Sample

from . import recorder
from .activity import DATA, PYTHON, TORCH, Activity, activity
from .stacks import RawFrame, frames_of_thread, is_users, looking
from .thread_cpu import Ran, ThreadCpu

#: a gap this long is looked into; then the pauses between looks, the last of which repeats
FIRST_S = 0.005
#: one gap of so many is looked into earlier: after these in turn
GLANCE_EVERY, GLANCES_S = 16, (0.0012, 0.0026, 0.0018, 0.0038)
#: after so many in a row that found the host busy with what is told otherwise, no more often than that; what is known
#: of how a thread ran counts for twice as long
IN_VAIN, APART_NS = 10, 100_000_000
PAUSES_S = (0.003, 0.004, 0.005, 0.005, 0.005, 0.01, 0.01, *(0.02,) * 10, 0.05)
#: a look that comes so late was kept from the interpreter's lock (a collection, say): what follows is something new
LATE_NS = 10_000_000
SOON_S = 0.001
#: a look may wake up so late by itself; and an owner has to let go of the lock (sys.getswitchinterval())
LATE_WAKE_NS, FORCED_NS = 1_000_000, 4_500_000
#: so late: another thread runs Python, which lets go of the lock after 5 ms (sys.getswitchinterval()) when it is asked
KEPT_OUT_NS = 2_500_000
LATELY_NS = 2 * APART_NS  # what a thread did before that says nothing of now
#: pauses while the host is busy with what is told otherwise, the last of which repeats
BUSY_S = (0.005, 0.01, 0.02)

#: shares of the time between two looks: from which on it ran, was kept from a processor, or another thread held
#: the interpreter's lock
_RAN, _QUEUED, _HOLDS = 0.7, 0.3, 0.3
_LITTLE = 0.5  # of the time since it was last heard of: then it was kept from running, or slept
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


class _Spent(NamedTuple):
    """What a thread did between two looks, ns: the rest it slept, or waited for the interpreter's lock."""

    span: int
    running: int
    queued: int


class _Verdict(NamedTuple):
    """How the thread was for this share of the time; it ran for the rest of it."""

    state: str
    share: float = 1.0
    holder: str = ""
    where: int = 0  # stack of the holder


class _Look(NamedTuple):
    """What a look found."""

    at: int
    frames: tuple[RawFrame, ...]
    asleep: bool  # in the kernel, or told to wait
    verdict: _Verdict


def _see(target: Target) -> Activity | None:
    with looking:
        frame = sys._current_frames().get(target.ident)
        seen = activity(frame, target.spine) if frame is not None else None
        del frame
    return seen


def _spent(before: _Books | None, now: _Books) -> _Spent | None:
    """None where nothing is known."""
    if before is None or before.main is None or now.main is None:
        return None
    running, queued = now.main.running - before.main.running, now.main.queued - before.main.queued
    return _Spent(max(1, now.at - before.at), running, queued)


def _at_most(before: _Books | None, now: _Books, span: int) -> _Spent | None:
    """What it did in the last ``span``, if all that it ran since ``before`` was then; None where that may be much."""
    spent = _spent(before, now)
    if spent is None or spent.span > LATELY_NS or spent.running + spent.queued > _LITTLE * span:
        return None
    return _Spent(span, spent.running, spent.queued)


def turned(begin: int, end: int, due: int, edge: int, was_asleep: bool, asleep: bool, on_cpu: int | None) -> int:
    """When a thread left for what it does at ``end`` what it did at ``begin`` (ns), having needed ``on_cpu`` since.

    A thread that slept and now runs, or the other way round, tells it by the processor's time. Of one that did either
    all the while it was when a scope began or ended (``edge``), or else in the middle: too early is as likely as late.
    A look that had to wait for the interpreter's lock until that was taken from its owner found what kept it: the
    middle of the time until it was ``due``. One that had to wait until the lock was let go of found what came next.
    """
    if on_cpu is not None and was_asleep and not asleep:
        return max(begin, end - on_cpu)
    if on_cpu is not None and asleep and not was_asleep:
        return min(end, begin + on_cpu)
    if begin < edge < end:
        return edge
    if let_go(end - due):
        return end
    return (begin + max(begin, min(due, end))) // 2


def let_go(waited: int) -> bool:
    """Whether the owner of the interpreter's lock let go of it after ``waited`` ns; after more it has to."""
    return LATE_WAKE_NS <= waited < FORCED_NS


class StackSampler:
    """The looks into one recording's gaps. Used by one thread, but for :meth:`flush`."""

    def __init__(
        self,
        rec: recorder.Recorder,
        now: Callable[[], int] = time.perf_counter_ns,
        books: Callable[[int | None], ThreadCpu] = ThreadCpu,
    ) -> None:
        self.looks = 0
        self._rec = rec
        self._now = now
        self._books_of = books
        self._lock = threading.Lock()
        self._pending: Sample | None = None
        self._until = 0  # ns: end of what was told or is pending
        self._looks_here = 0  # into the present gap
        self._due = 0  # ns: when to look at it again
        self._gaps = 0
        self._glances = self._glanced = 0  # how many; ns: when the latest gap began
        self._glance_at = GLANCE_EVERY  # the gap for the next one
        self._in_vain = 0  # glances, since something was found
        self._short = FIRST_S * 0.8  # seconds for which nothing was told, less than which is not looked into
        self._wary = 0  # ns: until then its books are read when a gap begins, for it was not known how it ran in one
        self._busy = 0  # times in a row there was nothing to look at
        self._books: _Books | None = None
        self._last: _Look | None = None
        self._main: tuple[int, ThreadCpu] | None = None
        self._lately: _Books | None = None  # at the last look that was taken, or not worth taking
        self._others: dict[int, tuple[ThreadCpu, Ran | None, int]] = {}  # and when they were asked
        self._known: set[tuple[RawFrame, ...]] = set()

    def idle_again(self) -> float:
        """The device has just become idle: seconds until the first look."""
        looked, self._looks_here, self._busy = self._looks_here, 0, 0
        now = self._now()
        self._gaps += 1
        first = FIRST_S
        if self._gaps >= self._glance_at and (self._in_vain < IN_VAIN or now - self._glanced >= APART_NS):
            self._glance_at, self._glanced = self._gaps + GLANCE_EVERY, now
            self._glances += 1
            first = GLANCES_S[self._glances % len(GLANCES_S)]
        self._short = first * 0.8
        self._due = now + round(first * 1e9)
        # where gaps are long the next one is likely to be: then its first look can tell how the thread ran
        wanted = looked or now < self._wary
        self._books = self._ask(now, self._main[0]) if wanted and self._main is not None else None
        self._lately = self._books or self._lately
        return first

    def look(self, target: Target, idle_since: int) -> float:
        """Look at the thread, which has kept the device waiting since ``idle_since``; seconds until the next look."""
        now = self._now()
        since = max(target.since, idle_since)
        due = self._due or now
        if now - due >= KEPT_OUT_NS and self._kept_out(now, target, idle_since):
            return self._next(now, 0.0)
        if now - since < self._short * 1e9:
            return self._come_again(now, max(FIRST_S - (now - since) / 1e9, 0.001))
        seen = _see(target)
        if seen is None or not seen.frames:
            return self._come_again(now, 0.0)
        self.looks += 1
        self._busy = 0
        self._in_vain = 0
        begin = max(since, self._until)
        books = self._ask(now, target.ident)
        before, self._books = self._books, books
        lately, self._lately = self._lately, books
        if before is not None and now - before.at > 2 * (now - since):  # it was busy for most of the time since then
            before = None
        spent = _spent(before, books) if before is not None else _at_most(lately, books, now - since)
        if spent is None:
            self._wary = now + LATELY_NS
        if let_go(now - due) and (self._last is None or self._last.at != begin):
            # it waits for something, or computes without the lock, only now: what it did until then is not known
            self._until = now
        elif begin < now:
            self._tell(begin, now, due, target, seen, spent)
        return self._next(now, SOON_S if now > due + LATE_NS else 0.0)

    def _next(self, now: int, soon: float) -> float:
        self._looks_here = 0 if soon else self._looks_here + 1
        pause = soon or PAUSES_S[min(self._looks_here, len(PAUSES_S)) - 1]
        self._due = now + round(pause * 1e9)
        return pause

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
        for books, _, _ in self._others.values():
            books.close()
        self._main, self._others = None, {}

    def _come_again(self, now: int, least: float) -> float:
        """There is nothing to look at: the host is busy with what is told otherwise."""
        self.flush()
        if self._short < FIRST_S * 0.8:
            self._in_vain += 1
        self._books = None
        if self._main is not None:
            self._lately = self._ask(now, self._main[0])
        pause = max(least, BUSY_S[min(self._busy, len(BUSY_S) - 1)])
        self._busy += 1
        self._looks_here = 0
        self._due = now + round(pause * 1e9)
        return pause

    def _kept_out(self, now: int, target: Target, idle_since: int) -> bool:
        """This look had to wait for the interpreter's lock. So does the thread, if it did not run, nor sleeps: told.

        Also of a thread that does much that is told: each time it lets go of the lock it has to wait for it again.
        """
        books = self._ask(now, target.ident)
        before, self._lately = self._lately, books
        asked_before = bool(self._others)
        held = self._holder(target.ident, now)
        spent = _spent(before, books)
        if held is None or not asked_before or spent is None or spent.span > LATELY_NS:
            return False
        if spent.running + spent.queued >= _RAN * spent.span:
            return False
        assert self._main is not None
        seen = _see(target)
        if self._main[1].sleeps_elsewhere() or (seen is not None and seen.asked_to_wait):
            return False
        frames = seen.frames if seen is not None else frames_of_thread(target.ident)
        begin = max(idle_since, self._until, now - spent.span)
        if not frames or begin >= now:
            return False
        self.looks += 1
        self._busy = 0
        self._books = books
        verdict = _Verdict("gil", 1.0 - spent.running / spent.span, *held)
        self._add_shared(begin, now, target.tid, frames, verdict)
        self._last = _Look(now, frames, False, verdict)
        return True

    # -- how it ran

    def _ask(self, now: int, ident: int) -> _Books:
        if self._main is None or self._main[0] != ident:
            if self._main is not None:
                self._main[1].close()
            native = next((t.native_id for t in threading.enumerate() if t.ident == ident), None)
            self._main = (ident, self._books_of(native))
        return _Books(now, self._main[1].read())

    def _judge(self, seen: Activity, asleep: bool, ident: int, spent: _Spent | None) -> _Verdict:
        if seen.kind not in (PYTHON, TORCH):
            reader = self._reader() if seen.kind == DATA and seen.asked_to_wait else ("", 0)
            return _Verdict(seen.kind, 1.0, *reader)
        torch = seen.kind == TORCH
        if spent is None:
            return _Verdict("torch") if torch else self._waits(seen, ident) if asleep else _Verdict("")
        ran, queued = spent.running / spent.span, spent.queued / spent.span
        if ran >= _RAN:
            return _Verdict(seen.kind)
        if queued >= _QUEUED:
            return _Verdict("cpu", min(queued, 1.0))
        if not asleep:
            asked_before = bool(self._others)
            held = self._holder(ident, self._now())
            if held is not None:
                return _Verdict("gil", 1.0 - min(ran, 1.0), *held)
            if not asked_before and not torch:
                return _Verdict("")  # who ran is known from the next look on
        return self._waits(seen, ident) if ran < _RAN / 2 and not torch else _Verdict(seen.kind)

    def _waits(self, seen: Activity, ident: int) -> _Verdict:
        """It waits: as it was told to, by a lock of Python's, for the thread that runs, if one does."""
        assert self._main is not None
        told = seen.asked_to_wait and not self._main[1].sleeps_elsewhere()
        return _Verdict("wait", 1.0, *(self._holder(ident, self._now()) or ()) if told else ())

    def _holder(self, ident: int, at: int) -> tuple[str, int] | None:
        """The other thread of Python that ran most since it was last asked, if that is much; its name and place.

        Ready to run and kept from it counts too: it has the lock all the while.
        """
        own = threading.get_ident()
        best: threading.Thread | None = None
        most = _HOLDS
        for thread in threading.enumerate()[:_THREADS]:
            if thread.ident in (ident, own, None) or thread.native_id is None:
                continue
            if thread.name.startswith(OURS) and thread.name != READER:
                continue
            clock, before, asked = self._others.get(thread.native_id) or (self._books_of(thread.native_id), None, 0)
            now = clock.read()
            self._others[thread.native_id] = (clock, now, at)
            if now is not None and before is not None and at > asked:
                share = (sum(now) - sum(before)) / (at - asked)
                if share > most:
                    best, most = thread, share
        if len(self._others) > 4 * _THREADS:
            for clock, _, _ in self._others.values():
                clock.close()
            self._others.clear()
        if best is None or best.ident is None:
            return None
        return best.name, self._users_place(best.ident)

    def _reader(self) -> tuple[str, int]:
        """The thread of the runtime's loader that reads for the one that waits; its name and place."""
        reader = next((thread for thread in threading.enumerate() if thread.name == READER), None)
        if reader is None or reader.ident is None:
            return "", 0
        return reader.name, self._users_place(reader.ident)

    # -- telling

    def _users_place(self, ident: int) -> int:
        """Where another thread is in the user's program; 0: it is in a library that called itself."""
        frames = frames_of_thread(ident)
        return self._place(frames) if is_users(frames) else 0

    def _place(self, frames: tuple[RawFrame, ...]) -> int:
        if frames not in self._known:
            if len(self._known) >= _PLACES:
                frames = frames[:1]
            else:
                self._known.add(frames)
        return self._rec.stack(frames)

    def _tell(self, begin: int, end: int, due: int, target: Target, seen: Activity, spent: _Spent | None) -> None:
        assert self._main is not None
        asleep = seen.asked_to_wait or self._main[1].sleeps_elsewhere()
        verdict = self._judge(seen, asleep, target.ident, spent)
        last = self._last
        if last is not None and last.at == begin and last.frames != seen.frames:
            on_cpu = None if spent is None or verdict.state == "gil" else spent.running + spent.queued
            turn = turned(begin, end, due, self._rec.edge, last.asleep, asleep, on_cpu)
            if spent is not None and on_cpu is not None and last.asleep != asleep and turn < end:
                # all of the processor's time belongs to one of the two
                running, queued = (0, 0) if asleep else (spent.running, spent.queued)
                verdict = self._judge(seen, asleep, target.ident, _Spent(end - turn, running, queued))
            self._add(begin, turn, self._place(last.frames), target.tid, last.verdict)
            begin = turn
        self._add_shared(begin, end, target.tid, seen.frames, verdict)
        self._last = _Look(end, seen.frames, asleep, verdict)

    def _add_shared(self, begin: int, end: int, tid: int, frames: tuple[RawFrame, ...], verdict: _Verdict) -> None:
        stack = self._place(frames)
        cut = end - round((end - begin) * verdict.share)
        # when in that time it ran is not known; how long is
        self._add(begin, cut, stack, tid, _Verdict(PYTHON))
        self._add(cut, end, stack, tid, verdict)
        self._until = end

    def _add(self, begin: int, end: int, stack: int, tid: int, verdict: _Verdict) -> None:
        if begin >= end:
            return
        state, _, holder, at = verdict
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
