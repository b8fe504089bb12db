"""Samples the stack of the thread that keeps the device waiting.

The idle sampler asks for a look (:meth:`StackSampler.look`), which returns when to look again: soon at first, then ever
more seldom. Gaps shorter than :data:`FIRST_S` are sampled now and then: work that comes every step is seen in some of
them. Consecutive looks that find the same become one :class:`~xlaprof.events.Sample`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from xlaprof.events import Sample

from . import recorder
from .activity import DATA, PYTHON, TORCH, Activity, activity, unchosen_moment
from .stacks import RawFrame, frames_of_thread, is_users, looking, running
from .thread_cpu import Ran, ThreadCpu

#: a gap this long is sampled; then the pauses between looks, the last of which repeats
FIRST_S = 0.005
#: one gap in 16 is sampled earlier: after these delays in turn
GLANCE_EVERY, GLANCES_S = 16, (0.0012, 0.0026, 0.0018, 0.0038)
#: after 10 early looks in a row that found the host busy with recorded work, early looks are at least 100 ms apart
IN_VAIN, APART_NS = 10, 100_000_000
PAUSES_S = (0.003, 0.004, 0.005, 0.005, 0.005, 0.01, 0.01, *(0.02,) * 10, 0.05)
#: a look this late had to wait for the interpreter's lock (a collection, say): another activity follows
LATE_NS = 10_000_000
SOON_S = 0.001
#: a thread may wake this late by itself; after this long the owner of the lock was forced to release it
LATE_WAKE_NS, FORCED_NS = 1_000_000, 4_500_000
#: this late: another thread runs Python, which releases the lock 5 ms (sys.getswitchinterval()) after a request
KEPT_OUT_NS = 2_500_000
LATELY_NS = 2 * APART_NS  # older CPU times say nothing about now
#: pauses while the host is busy with recorded work, the last of which repeats
BUSY_S = (0.005, 0.01, 0.02)

#: least shares of the time between two looks for a thread to count as running, as queued for a processor, and for
#: another thread to count as holding the interpreter's lock
_RAN, _QUEUED, _HOLDS = 0.7, 0.3, 0.3
_LITTLE = 0.5  # share of the gap; a thread that ran less in a longer time was blocked, or slept
#: prefix of our threads' names
OURS = "xlaprof "
#: the thread in which the runtime's loader draws batches from the program's
READER = "xlaprof loader read"
_PLACES = 4_096  # different stacks recorded whole; of further ones only the innermost frame
_THREADS = 16  # threads asked whether they hold the interpreter's lock


class Target(NamedTuple):
    """The thread to look at."""

    ident: int  # threading.get_ident()
    tid: int  # the recording's number for it
    since: int  # ns: when it last did something that is recorded as an event
    spine: tuple[RawFrame, ...]  # where that was


class _CpuReading(NamedTuple):
    """A thread's CPU times at a look."""

    at: int
    main: Ran | None


class _Spent(NamedTuple):
    """How a thread spent the ns between two looks; the rest it slept, or waited for the interpreter's lock."""

    span: int
    running: int
    queued: int


class _Verdict(NamedTuple):
    """The thread's state for this share of the time; for the rest it ran."""

    state: str
    share: float = 1.0
    holder: str = ""
    where: int = 0  # stack of the holder


class _Look(NamedTuple):
    """The result of a look."""

    at: int
    frames: tuple[RawFrame, ...]
    asleep: bool  # in the kernel, or waiting for a lock of Python's
    verdict: _Verdict


def _activity_of(target: Target) -> Activity | None:
    with looking:
        stack = running(target.ident)
        seen = activity(stack[0], target.spine) if stack else None
        del stack
    return seen


def _spent(before: _CpuReading | None, now: _CpuReading) -> _Spent | None:
    """None where a reading is missing."""
    if before is None or before.main is None or now.main is None:
        return None
    running, queued = now.main.running - before.main.running, now.main.queued - before.main.queued
    return _Spent(max(1, now.at - before.at), running, queued)


def _at_most(before: _CpuReading | None, now: _CpuReading, span: int) -> _Spent | None:
    """The last ``span`` ns, if the thread ran in them all that it ran since ``before``; None where that may be much."""
    spent = _spent(before, now)
    if spent is None or spent.span > LATELY_NS or spent.running + spent.queued > _LITTLE * span:
        return None
    return _Spent(span, spent.running, spent.queued)


def change_moment(begin: int, end: int, due: int, edge: int, was_asleep: bool, asleep: bool, on_cpu: int | None) -> int:
    """The moment (ns) at which a thread changed its activity between two looks, at ``begin`` and at ``end``.

    ``on_cpu``, its CPU time since ``begin``, dates the change where the thread slept and now runs, or the other way
    round. Else the change was when a scope began or ended (``edge``), or in the middle, the best guess. A look that
    waited for the interpreter's lock until its owner was forced to release it sees the activity that delayed it: the
    middle of the time until it was ``due``. Where the owner released the lock by itself, the look sees the activity
    after that.
    """
    if on_cpu is not None and was_asleep and not asleep:
        return max(begin, end - on_cpu)
    if on_cpu is not None and asleep and not was_asleep:
        return min(end, begin + on_cpu)
    if begin < edge < end:
        return edge
    if released_by_itself(end - due):
        return end
    return (begin + max(begin, min(due, end))) // 2


def released_by_itself(waited: int) -> bool:
    """Whether the owner of the interpreter's lock released it by itself after ``waited`` ns."""
    return LATE_WAKE_NS <= waited < FORCED_NS


class StackSampler:
    """Samples the gaps of one recording. One thread uses it; any may :meth:`flush`."""

    def __init__(
        self,
        rec: recorder.Recorder,
        now: Callable[[], int] = time.perf_counter_ns,
        cpu: Callable[[int | None], ThreadCpu] = ThreadCpu,
        emit: Callable[[Sample], None] | None = None,
    ) -> None:
        self.looks = 0
        self._emit = rec.emit if emit is None else emit
        self._rec = rec
        self._now = now
        self._cpu_clock = cpu
        self._lock = threading.Lock()
        self._pending: Sample | None = None
        self._until = 0  # ns: end of the samples so far
        self._looks_here = 0  # into the present gap
        self._due = 0  # ns: when to look at it again
        self._gaps = 0
        self._glances = self._glanced = 0  # how many; ns: when the latest gap began
        self._glance_at = GLANCE_EVERY  # the gap for the next one
        self._in_vain = 0  # early looks since something was found
        self._short = FIRST_S * 0.8  # seconds without an event below which there is nothing to sample
        self._wary = 0  # ns: CPU times were missing in a gap; until then they are read when a gap begins
        self._busy = 0  # times in a row with nothing to look at
        self._cpu: _CpuReading | None = None
        self._last: _Look | None = None
        self._main: tuple[int, ThreadCpu] | None = None
        self._lately: _CpuReading | None = None  # at the last look, taken or not worth taking
        self._others: dict[int, tuple[ThreadCpu, Ran | None, int]] = {}  # and when they were read
        self._known: set[tuple[RawFrame, ...]] = set()

    def gap_began(self) -> float:
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
        # after a long gap the next is probably long: a reading at its begin lets its first look judge the thread
        reads = looked or now < self._wary
        self._cpu = self._read_cpu(now, self._main[0]) if reads and self._main is not None else None
        self._lately = self._cpu or self._lately
        return first

    def look(self, target: Target, idle_since: int, asked: int = 0) -> float:
        """Sample the thread, which has kept the device waiting since ``idle_since``; seconds until the next look.

        ``asked``: ns, when the look was begun, and the interpreter's lock asked for; 0: when it was due.
        """
        now = self._now()
        since = max(target.since, idle_since)
        due = asked or self._due or now
        if now - due >= KEPT_OUT_NS and self._sample_lock_wait(now, target, idle_since):
            return self._next(now, 0.0)
        if now - since < self._short * 1e9:
            return self._nothing_to_sample(now, max(FIRST_S - (now - since) / 1e9, 0.001))
        unchosen_moment()
        later = self._now()
        now, due = later, due + later - now  # as late as the look was
        seen = _activity_of(target)
        if seen is None or not seen.frames:
            return self._nothing_to_sample(now, 0.0)
        self.looks += 1
        self._busy = 0
        self._in_vain = 0
        begin = max(since, self._until)
        cpu = self._read_cpu(now, target.ident)
        before, self._cpu = self._cpu, cpu
        lately, self._lately = self._lately, cpu
        if before is not None and now - before.at > 2 * (now - since):  # busy for most of the time since then
            before = None
        spent = _spent(before, cpu) if before is not None else _at_most(lately, cpu, now - since)
        if spent is None:
            self._wary = now + LATELY_NS
        if released_by_itself(now - due) and (self._last is None or self._last.at != begin):
            # the thread waits, or computes without the lock, only now: its activity until then is not known
            self._until = now
        elif begin < now:
            self._sample(begin, now, due, target, seen, spent)
        return self._next(now, SOON_S if now > due + LATE_NS else 0.0)

    def _next(self, now: int, soon: float) -> float:
        self._looks_here = 0 if soon else self._looks_here + 1
        pause = soon or PAUSES_S[min(self._looks_here, len(PAUSES_S)) - 1]
        self._due = now + round(pause * 1e9)
        return pause

    def flush(self) -> None:
        """Emit the pending sample."""
        with self._lock:
            pending, self._pending = self._pending, None
        if pending is not None:
            self._emit(pending)

    def close(self) -> None:
        self.flush()
        if self._main is not None:
            self._main[1].close()
        for cpu, _, _ in self._others.values():
            cpu.close()
        self._main, self._others = None, {}

    def _nothing_to_sample(self, now: int, least: float) -> float:
        """There is nothing to sample: the host is busy with recorded work."""
        self.flush()
        if self._short < FIRST_S * 0.8:
            self._in_vain += 1
        self._cpu = None
        if self._main is not None:
            self._lately = self._read_cpu(now, self._main[0])
        pause = max(least, BUSY_S[min(self._busy, len(BUSY_S) - 1)])
        self._busy += 1
        self._looks_here = 0
        self._due = now + round(pause * 1e9)
        return pause

    def _sample_lock_wait(self, now: int, target: Target, idle_since: int) -> bool:
        """This look waited for the interpreter's lock. So did the thread if it neither ran nor sleeps: a sample.

        That holds for a thread that records much as well: each time it releases the lock it has to wait for it again.
        """
        cpu = self._read_cpu(now, target.ident)
        before, self._lately = self._lately, cpu
        asked_before = bool(self._others)
        held = self._holder(target.ident, now)
        spent = _spent(before, cpu)
        if held is None or not asked_before or spent is None or spent.span > LATELY_NS:
            return False
        if spent.running + spent.queued >= _RAN * spent.span:
            return False
        main = self._main
        if main is None:  # the recording has ended meanwhile
            return False
        seen = _activity_of(target)
        if main[1].sleeps_elsewhere() or (seen is not None and seen.in_wait_call):
            return False
        frames = seen.frames if seen is not None else frames_of_thread(target.ident)
        begin = max(idle_since, self._until, now - spent.span)
        if not frames or begin >= now:
            return False
        self.looks += 1
        self._busy = 0
        self._cpu = cpu
        verdict = _Verdict("gil", 1.0 - spent.running / spent.span, *held)
        self._add_shared(begin, now, target.tid, frames, verdict)
        self._last = _Look(now, frames, False, verdict)
        return True

    # -- its state

    def _read_cpu(self, now: int, ident: int) -> _CpuReading:
        main = self._main
        if main is None or main[0] != ident:
            if main is not None:
                main[1].close()
            native = next((t.native_id for t in threading.enumerate() if t.ident == ident), None)
            main = self._main = (ident, self._cpu_clock(native))
        return _CpuReading(now, main[1].read())

    def _judge(self, seen: Activity, asleep: bool, ident: int, spent: _Spent | None) -> _Verdict:
        if seen.kind not in (PYTHON, TORCH):
            reader = self._reader() if seen.kind == DATA and seen.in_wait_call else ("", 0)
            return _Verdict(seen.kind, 1.0, *reader)
        torch = seen.kind == TORCH
        if spent is None:
            return _Verdict("torch") if torch else self._judge_wait(seen, ident) if asleep else _Verdict("")
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
                return _Verdict("")  # which thread ran is known from the next look on
        return self._judge_wait(seen, ident) if ran < _RAN / 2 and not torch else _Verdict(seen.kind)

    def _judge_wait(self, seen: Activity, ident: int) -> _Verdict:
        """The thread waits; at a lock of Python's, for the thread that runs, if one does."""
        main = self._main
        if main is None:
            return _Verdict("")
        locked = seen.in_wait_call and not main[1].sleeps_elsewhere()
        return _Verdict("wait", 1.0, *(self._holder(ident, self._now()) or ()) if locked else ())

    def _holder(self, ident: int, at: int) -> tuple[str, int] | None:
        """Name and place of the other Python thread that ran most since its last reading, if that is much.

        Time queued for a processor counts too: the thread holds the lock all the while.
        """
        me = threading.get_ident()
        best: threading.Thread | None = None
        most = _HOLDS
        for thread in threading.enumerate()[:_THREADS]:
            if thread.ident in (ident, me, None) or thread.native_id is None:
                continue
            if thread.name.startswith(OURS) and thread.name != READER:
                continue
            clock, before, since = self._others.get(thread.native_id) or (self._cpu_clock(thread.native_id), None, 0)
            now = clock.read()
            self._others[thread.native_id] = (clock, now, at)
            if now is not None and before is not None and at > since:
                share = (sum(now) - sum(before)) / (at - since)
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
        """Name and place of the runtime loader's thread, which reads for the one that waits."""
        reader = next((thread for thread in threading.enumerate() if thread.name == READER), None)
        if reader is None or reader.ident is None:
            return "", 0
        return reader.name, self._users_place(reader.ident)

    # -- samples

    def _users_place(self, ident: int) -> int:
        """Stack id of another thread in the user's program; 0: it runs a library that called itself."""
        frames = frames_of_thread(ident)
        return self._place(frames) if is_users(frames) else 0

    def _place(self, frames: tuple[RawFrame, ...]) -> int:
        if frames not in self._known:
            if len(self._known) >= _PLACES:
                frames = frames[:1]
            else:
                self._known.add(frames)
        return self._rec.stack(frames)

    def _sample(self, begin: int, end: int, due: int, target: Target, seen: Activity, spent: _Spent | None) -> None:
        main = self._main
        if main is None:
            return
        asleep = seen.in_wait_call or main[1].sleeps_elsewhere()
        verdict = self._judge(seen, asleep, target.ident, spent)
        last = self._last
        if last is not None and last.at == begin and last.frames != seen.frames:
            on_cpu = None if spent is None or verdict.state == "gil" else spent.running + spent.queued
            turn = change_moment(begin, end, due, self._rec.edge, last.asleep, asleep, on_cpu)
            if spent is not None and on_cpu is not None and last.asleep != asleep and turn < end:
                # all of the CPU time belongs to one of the two
                running, queued = (0, 0) if asleep else (spent.running, spent.queued)
                verdict = self._judge(seen, asleep, target.ident, _Spent(end - turn, running, queued))
            self._add(begin, turn, self._place(last.frames), target.tid, last.verdict)
            begin = turn
        self._add_shared(begin, end, target.tid, seen.frames, verdict)
        self._last = _Look(end, seen.frames, asleep, verdict)

    def _add_shared(self, begin: int, end: int, tid: int, frames: tuple[RawFrame, ...], verdict: _Verdict) -> None:
        stack = self._place(frames)
        cut = end - round((end - begin) * verdict.share)
        # only the sum of the time in which it ran is known, not when: shown first
        self._add(begin, cut, stack, tid, _Verdict(PYTHON))
        self._add(cut, end, stack, tid, verdict)
        self._until = end

    def _add(self, begin: int, end: int, stack: int, tid: int, verdict: _Verdict) -> None:
        if begin >= end:
            return
        state, _, holder, at = verdict
        done: Sample | None
        with self._lock:
            one = self._pending
            if one is not None and one.t + one.dur == begin and (one.stack, one.tid) == (stack, tid):
                if not one.state:  # not known at the first look: taken to be the same as since
                    one = Sample(one.t, one.dur, stack, state, tid, holder, at)
                if (one.state, one.holder, one.at) == (state, holder, at):
                    self._pending = Sample(one.t, end - one.t, stack, state, tid, holder, at)
                    return
            done, self._pending = self._pending, Sample(begin, end - begin, stack, state, tid, holder, at)
        if done is not None:
            self._emit(done)
