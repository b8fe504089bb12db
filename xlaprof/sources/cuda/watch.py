"""When the device was busy, what the host did meanwhile where it was not, and where the host waited for it.

Two threads: one asks the device, without Python (:mod:`.poller`), the other tells of what that found, and looks at the
program's main thread. The latter needs the interpreter's lock, which may cost the program a tenth of a millisecond: it
wakes ten times a second, and where the device has been idle for long, as often as costs little.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, NamedTuple, Protocol

from xlaprof import events
from xlaprof.errors import warn
from xlaprof.recording import recorder
from xlaprof.recording.looks import WAITS
from xlaprof.recording.stack_sampler import LATE_WAKE_NS, StackSampler, Target
from xlaprof.recording.stacks import RawFrame, looking, running, user_frames_of

from .poller import Poller, Unwatched, in_thread
from .stretches import Stretch, Stretches
from .waits import ONLY_WAITING, WAITING, called

if TYPE_CHECKING:
    from xlaprof.recording.recorder import Recorder
    from xlaprof.vocabulary import Vocabulary

BEAT_NS = 100_000_000  # on average, between two times that it wakes whatever the device does
_BEATS = (1.31, 0.72, 1.08, 0.59, 1.43, 0.87)  # of that, by turns: equal ones could fall into step with the program
#: between two looks into gaps at least so many times as long as one took, with what the lock's change of hands takes
_REST, _HANDS_NS = 200, 100_000
#: so many times the host was in a call that waits, and nothing else, though no work had been seen for so long
_ELSEWHERE, _QUIET_NS = 10, 300_000_000
_FOREVER = 1 << 62
_DEVICES_NS = 1_000_000_000  # between two looks for devices that came into use
_UNUSED_S = 0.02  # the same until there is one


class Driver(Protocol):
    """What is known of the devices."""

    def devices(self) -> list[int]: ...
    def describe(self, device: int) -> tuple[str, int]: ...
    def poller(self) -> Poller: ...
    def enter(self, device: int) -> None: ...
    def error(self, code: int) -> str: ...


class _Device(NamedTuple):
    number: int
    poller: Poller
    stretches: Stretches


class Watch:
    """Of one recording."""

    def __init__(self, rec: Recorder, driver: Callable[[], Driver], name: str, words: Vocabulary) -> None:
        """``driver`` takes a while, and is called in a thread of ours."""
        self._rec, self._make, self._source = rec, driver, (name, words)
        self._devices: list[_Device] = []
        self._sampler = StackSampler(rec)
        self._main = threading.main_thread().ident or 0
        self._spine: tuple[RawFrame, ...] = ()  # where the main thread was when it did not keep the device waiting
        self._seq = itertools.count(1)
        self._first, self._next, self._in_gap = 0.0, 0, False
        self._beats = itertools.cycle(_BEATS)
        self._beat_at = self._beat_last = self._devices_at = 0
        self._waits = self._elsewhere = 0  # looks that found the host wait for the device, or for one without work
        self._failed = ""
        self._ended = threading.Lock()
        self._ended.acquire()
        self._threads = [in_thread(self._run, "cuda watcher")]

    def stop(self) -> None:
        """The recording ends, from any thread."""
        if self._ended.locked():
            self._ended.release()
        for one in list(self._devices):
            one.poller.end()
        for thread in self._threads:
            thread.join(timeout=10.0)
        self._drain(last=True)
        self._sampler.close()

    def _run(self) -> None:
        try:
            driver = self._make()
            while not self._ended.acquire(timeout=0 if self._devices else _UNUSED_S):
                if recorder.active is not self._rec or not self._goes_on(driver):
                    break
            for one in self._devices:
                one.poller.end()
        except Unwatched as error:
            warn(f"the GPU is not watched: {error}")
        except Exception as error:  # nothing of it may reach the program
            warn(f"the GPU is not watched: {type(error).__name__}: {error}")

    def _poll(self, driver: Driver, device: _Device) -> None:
        """The thread that asks a device."""
        try:
            driver.enter(device.number)
            device.poller.run()
            if device.poller.code:
                self._failed = driver.error(device.poller.code)
        except Unwatched as error:
            self._failed = str(error)

    def _goes_on(self, driver: Driver) -> bool:
        """Whether there will be more to tell, after a sleep and what there was."""
        now = perf_counter_ns()
        if now - self._devices_at >= _DEVICES_NS or not self._devices:
            self._devices_at = now
            self._find(driver)
        if not self._devices:
            return True
        if self._failed:
            warn(f"the GPU is not watched any more: {self._failed}")
            return False
        self._sleep_and_look()
        return True

    def _find(self, driver: Driver) -> None:
        """Watch what has come into use."""
        known = {one.number for one in self._devices}
        for number in driver.devices():
            if number in known:
                continue
            if not self._devices:
                name, count = driver.describe(number)
                self._rec.emit(events.Source(perf_counter_ns(), *self._source))
                self._rec.emit(events.Device(perf_counter_ns(), "cuda", name, count))
                self._beat_last = self._beat_at = perf_counter_ns()
                self._first = self._sampler.gap_began()
            device = _Device(number, driver.poller(), Stretches())
            self._devices.append(device)
            self._threads.append(in_thread(lambda device=device: self._poll(driver, device), f"cuda poller {number}"))  # type: ignore[misc]

    # -- gaps, and waits

    def _idle_since(self) -> int:
        """ns: since when no device has had work; 0: one has, or none ever had."""
        states = [one.poller.state for one in self._devices]
        if any(state is None or state.busy for state in states):
            return 0
        return max(state.at for state in states if state is not None)

    def _sleep_and_look(self) -> None:
        first = round(self._first * 1e9)
        waits_for_look = self._in_gap or perf_counter_ns() < self._next
        # several devices have no gap alone
        awaited = first if len(self._devices) == 1 and not waits_for_look else _FOREVER
        until = min(self._beat_at, self._next) if waits_for_look else self._beat_at
        woke = self._devices[0].poller.sleep(until, awaited)
        now = perf_counter_ns()
        self._drain()
        idle_since, read_at = self._idle_since(), min(one.poller.read_at for one in self._devices)
        if idle_since and read_at - idle_since >= first and any(one.stretches.ever for one in self._devices):
            if woke >= self._next:
                worked = thread_time_ns()
                pause = self._sampler.look(Target(self._main, 1, 0, self._spine), idle_since, woke)
                worked = thread_time_ns() - worked
                self._next = perf_counter_ns() + max(round(pause * 1e9), _REST * (worked + _HANDS_NS))
                self._in_gap = True
        elif self._in_gap:
            self._in_gap = False
            self._sampler.flush()
            self._first = self._sampler.gap_began()
        if woke >= self._beat_at:
            if now - woke < LATE_WAKE_NS:  # else the host ran Python until we had the lock
                self._look_at_wait(now, now - max(self._beat_last, now - 3 * BEAT_NS), idle_since)
            self._beat_last = now
            self._beat_at = now + round(next(self._beats) * BEAT_NS)

    def _look_at_wait(self, now: int, ns: int, idle_since: int) -> None:
        """Whether the host waits for the device: a look at a moment that nothing chose, and stands for ``ns``."""
        with looking:
            stack = running(self._main)
            frames = user_frames_of(stack[0]) if stack else ()
            call = called(stack[0].f_code, stack[0].f_lasti) if stack else ""
            del stack
        if not idle_since:
            self._spine = frames or self._spine
            if call in WAITING and ns > 0:
                self._waits += 1
                self._rec.emit(events.Look(now - ns, ns, self._rec.stack(frames), WAITS))
        elif call in ONLY_WAITING and now - idle_since >= _QUIET_NS:
            self._elsewhere += 1
            if self._elsewhere >= max(_ELSEWHERE, self._waits):
                self._failed = "it works on another stream than the default one, where it seems idle"

    # -- events

    def _drain(self, last: bool = False) -> None:
        for one in self._devices:
            at = one.poller.read_at
            told = list(one.stretches.take(one.poller.take(), at, self._rec.turns))
            if last:
                told += one.stretches.cut(at)
            for stretch in told:
                self._tell(one.number, stretch)

    def _tell(self, device: int, stretch: Stretch) -> None:
        if recorder.active is self._rec:
            seq, (start, end, count) = next(self._seq), stretch
            self._rec.emit(events.Execute(seq, 0, start, start, end, trigger="eager", device=device, calls=count))
