"""Looks at a thread that keeps the device waiting: when, what is reported of them, and what they cost."""

from __future__ import annotations

import linecache
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlaprof.events import Event, Sample
from xlaprof.recording.stack_sampler import (
    APART_NS,
    BUSY_S,
    FIRST_S,
    GLANCE_EVERY,
    GLANCES_S,
    IN_VAIN,
    PAUSES_S,
    SOON_S,
    StackSampler,
    Target,
    change_moment,
)
from xlaprof.recording.stacks import RawFrame
from xlaprof.recording.thread_cpu import Ran, ThreadCpu

MS = 1_000_000


class Log:
    """What a sampler asks of a recording."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.edge = 0
        self.places: dict[tuple[RawFrame, ...], int] = {}

    def emit(self, event: Event) -> None:
        assert isinstance(event, Sample)
        self.samples.append(event)

    def stack(self, frames: tuple[RawFrame, ...]) -> int:
        return self.places.setdefault(frames, len(self.places) + 1)

    def func(self, stack: int) -> str:
        return next(frames[0].func for frames, id in self.places.items() if id == stack)


class CpuTimes(ThreadCpu):
    """The kernel's, of a thread that runs and sleeps as the test says."""

    def __init__(self, native_id: int | None = None) -> None:
        self.ran, self.asleep = 0, False

    def read(self) -> Ran:
        return Ran(self.ran, 0)

    def sleeps_elsewhere(self) -> bool:
        return self.asleep

    def close(self) -> None:
        pass


class Clock:
    now = 0

    def __call__(self) -> int:
        return self.now


class Somebody:
    """A thread that is where it is sent: in one function or another, until it is sent on.

    It says that it is there and waits in one line, or else a look could still find it in the line before; and it is
    there once it waits, or else a look could find it while it says so.
    """

    def __init__(self, name: str = "somebody") -> None:
        self.there = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._live, name=name, daemon=True)
        self.thread.start()
        self.arrived()

    def _live(self) -> None:
        self.first_place()
        self.second_place()

    def first_place(self) -> None:
        _ = self.there.release(), self.go.acquire()

    def second_place(self) -> None:
        _ = self.there.release(), self.go.acquire()

    def on(self) -> None:
        self.go.release()
        self.arrived()

    def arrived(self) -> None:
        self.there.acquire()
        while not self.waits():
            os.sched_yield()

    def waits(self) -> bool:
        assert self.thread.ident is not None
        frame = sys._current_frames()[self.thread.ident]
        asked: Any = self.go  # threading takes the lock once for itself, before it is among those that wait
        return asked._cond._waiters and "waiter.acquire" in linecache.getline(frame.f_code.co_filename, frame.f_lineno)

    def end(self) -> None:
        self.go.release(2)
        self.thread.join()


class Worker(Somebody):
    """Whose frames do not say that it waits."""

    def _live(self) -> None:
        self.gates = [threading.Lock(), threading.Lock()]  # whose waiting leaves no frame of its own
        for gate in self.gates:
            gate.acquire()
        self.there.release()
        self.gates[0].acquire()
        self.there.release()
        self.gates[1].acquire()

    def on(self) -> None:
        self.gates[0].release()
        self.arrived()

    def waits(self) -> bool:
        return True  # nothing tells: its line is the same before

    def end(self) -> None:
        for gate in self.gates:
            if gate.locked():
                gate.release()
        self.thread.join()


@pytest.fixture
def somebody() -> Iterator[Somebody]:
    one = Somebody()
    yield one
    one.end()


def sampler() -> tuple[StackSampler, Log, Clock]:
    """Its clock and its processor times are the test's, not what this process really needed between two looks."""
    log, clock = Log(), Clock()
    any_log: Any = log
    return StackSampler(any_log, clock, CpuTimes), log, clock


def target(somebody: Somebody, since: int = 0) -> Target:
    ident = somebody.thread.ident
    assert ident is not None
    return Target(ident, 1, since, ())


def test_looks_that_find_the_same_are_one_sample_from_the_beginning_of_the_gap(somebody: Somebody) -> None:
    looks, log, clock = sampler()
    assert looks.gap_began() == FIRST_S
    for moment in (5, 8, 12, 17):
        clock.now = moment * MS
        looks.look(target(somebody), 0)
    assert log.samples == []
    looks.flush()
    (sample,) = log.samples
    assert (sample.t, sample.dur, sample.state) == (0, 17 * MS, "wait")
    assert "Somebody.first_place" in log.func(sample.stack)


def test_another_place_is_another_sample_and_they_do_not_overlap(somebody: Somebody) -> None:
    looks, log, clock = sampler()
    for moment in (5, 8):
        clock.now = moment * MS
        looks.look(target(somebody), 0)
    somebody.on()
    clock.now = 12 * MS
    looks.look(target(somebody), 0)
    looks.close()
    first, second = log.samples
    assert (first.t, first.dur) == (0, 10 * MS)  # seen at 8 and no more at 12
    assert (second.t, second.dur) == (10 * MS, 2 * MS)
    assert "second_place" in log.func(second.stack)


def test_what_was_seen_before_a_scope_began_ended_with_it(somebody: Somebody) -> None:
    looks, log, clock = sampler()
    for moment in (5, 8):
        clock.now = moment * MS
        looks.look(target(somebody), 0)
    somebody.on()
    log.edge = 9 * MS
    clock.now = 12 * MS
    looks.look(target(somebody), 0)
    looks.close()
    first, second = log.samples
    assert first.t + first.dur == second.t == 9 * MS


def test_the_processors_time_tells_when_a_sleeper_woke_and_when_a_runner_fell_asleep() -> None:
    """Looks at 100 and 120 ms: it needed 4 ms of a processor in between."""
    look = 100 * MS, 120 * MS, 120 * MS, 0
    assert change_moment(*look, was_asleep=True, asleep=False, on_cpu=4 * MS) == 116 * MS
    assert change_moment(*look, was_asleep=False, asleep=True, on_cpu=4 * MS) == 104 * MS
    assert change_moment(*look, was_asleep=True, asleep=True, on_cpu=4 * MS) == 110 * MS
    assert change_moment(*look, was_asleep=True, asleep=False, on_cpu=None) == 110 * MS  # no CPU times on this system


def test_what_kept_a_look_from_the_lock_had_begun_when_the_look_was_due() -> None:
    assert change_moment(100 * MS, 150 * MS, 120 * MS, 0, was_asleep=False, asleep=False, on_cpu=50 * MS) == 110 * MS
    # it was let go of before it had to be: by the call that was found
    assert change_moment(100 * MS, 123 * MS, 120 * MS, 0, was_asleep=False, asleep=False, on_cpu=23 * MS) == 123 * MS


@given(
    begin=st.integers(0, 10**12),
    span=st.integers(1, 10**9),
    due=st.integers(0, 10**12),
    edge=st.integers(0, 10**12),
    states=st.tuples(st.booleans(), st.booleans()),
    on_cpu=st.none() | st.integers(0, 10**10),
)
def test_a_turn_is_between_the_looks_whatever_the_cpu_times_say(
    begin: int, span: int, due: int, edge: int, states: tuple[bool, bool], on_cpu: int | None
) -> None:
    assert begin <= change_moment(begin, begin + span, due, edge, *states, on_cpu) <= begin + span


Looked = tuple[int, int, bool]  # ms, ms of a processor by then, whether it sleeps


def reported_of(looked: list[Looked]) -> list[tuple[str, int, int]]:
    """Of a thread that has gone on before the third look: ``(state, begin, end)``, ms."""
    log, clock, cpu_times, worker = Log(), Clock(), CpuTimes(), Worker()
    any_log: Any = log
    looks = StackSampler(any_log, clock, lambda native: cpu_times)
    for nth, (moment, ran, asleep) in enumerate(looked):
        if nth == 2:
            worker.on()
        clock.now, cpu_times.ran, cpu_times.asleep = moment * MS, ran * MS, asleep
        looks.look(target(worker), 0)
    looks.close()
    worker.end()
    assert len({sample.stack for sample in log.samples}) == 2
    return [(one.state, one.t // MS, (one.t + one.dur) // MS) for one in log.samples]


def test_a_sleep_and_the_work_after_it_are_parted_by_the_processors_time() -> None:
    """It slept at 10 ms; at 30 ms it is elsewhere, awake, and has needed 6 ms of a processor."""
    reported = reported_of([(5, 0, True), (10, 0, True), (30, 6, False), (35, 11, False)])
    assert reported == [("wait", 0, 24), ("python", 24, 35)]


def test_work_and_the_sleep_after_it_are_parted_by_the_processors_time() -> None:
    reported = reported_of([(5, 5, False), (10, 10, False), (30, 17, True), (35, 17, True)])
    assert reported == [("python", 0, 17), ("wait", 17, 35)]


def test_after_a_look_that_came_late_the_next_comes_soon(somebody: Somebody) -> None:
    """A collection holds the interpreter's lock for its whole time: what follows it is likely to be new."""
    looks, _, clock = sampler()
    clock.now = 5 * MS
    pause = looks.look(target(somebody), 0)
    clock.now += round(pause * 1e9) + 50 * MS
    assert looks.look(target(somebody), 0) == SOON_S
    clock.now += round(SOON_S * 1e9)
    assert looks.look(target(somebody), 0) == PAUSES_S[0]
    looks.close()


def test_the_pauses_grow_and_a_gap_of_a_minute_is_few_looks(somebody: Somebody) -> None:
    looks, _, clock = sampler()
    pause = looks.gap_began()
    while clock.now < 60_000 * MS:
        clock.now += round(pause * 1e9)
        pause = looks.look(target(somebody), 0)
    assert pause == PAUSES_S[-1]
    assert looks.looks < 60 / PAUSES_S[-1] + 20
    looks.close()


def test_of_many_short_gaps_some_are_looked_into_at_different_moments(somebody: Somebody) -> None:
    looks, log, clock = sampler()
    early = []
    for _ in range(8 * GLANCE_EVERY):
        begin = clock.now
        first = looks.gap_began()
        if first < FIRST_S:
            early.append(first)
            clock.now += round(first * 1e9)
            looks.look(target(somebody, since=begin), begin)
        clock.now = begin + 4 * MS  # over before anybody would have looked otherwise
        looks.flush()
    assert looks.looks == len(early) == 8
    assert set(early) == set(GLANCES_S)
    assert {one.dur for one in log.samples} == {round(first * 1e9) for first in GLANCES_S}


def test_where_the_host_records_in_short_gaps_they_are_looked_into_more_seldom_until_it_does_something_else(
    somebody: Somebody,
) -> None:
    looks, log, clock = sampler()

    def glances(gaps: int, records: bool) -> int:
        count = 0
        for _ in range(gaps):  # 4 ms each
            begin = clock.now
            first = looks.gap_began()
            if first < FIRST_S:
                count += 1
                clock.now += round(first * 1e9)
                looks.look(target(somebody, since=clock.now if records else begin), begin)
            clock.now = begin + 4 * MS
        return count

    assert glances(GLANCE_EVERY * IN_VAIN, records=True) == IN_VAIN
    every = APART_NS // (4 * MS)
    assert glances(10 * every, records=True) == 10
    assert not log.samples
    assert glances(every + 3 * GLANCE_EVERY, records=False) == 4
    looks.flush()
    assert log.samples


def test_a_look_that_waited_for_a_lock_that_was_let_go_of_does_not_say_what_was_before() -> None:
    """Sampling what a thread does by the interpreter's lock finds the calls that let go of it, not what computes."""
    log, clock, cpu_times, worker = Log(), Clock(), CpuTimes(), Worker()
    any_log: Any = log
    looks = StackSampler(any_log, clock, lambda native: cpu_times)
    for moment, ran in ((8, 8), (11, 8), (14, 8)):  # the first one was due at 5
        if moment == 8:
            assert looks.gap_began() == FIRST_S
        clock.now, cpu_times.ran = moment * MS, ran * MS
        looks.look(target(worker), 0)
    looks.close()
    worker.end()
    assert [(one.t, one.t + one.dur) for one in log.samples] == [(8 * MS, 14 * MS)]


def test_a_host_that_is_busy_with_what_is_reported_is_not_looked_at(somebody: Somebody) -> None:
    looks, log, clock = sampler()
    pauses = []
    for moment in range(5, 500, 5):
        clock.now = moment * MS
        pauses.append(looks.look(target(somebody, since=clock.now - MS), 0))  # it recorded something 1 ms ago
    looks.close()
    assert looks.looks == 0
    assert log.samples == []
    assert pauses[-1] == BUSY_S[-1]


def test_what_ended_before_the_device_was_idle_is_not_reported_as_idle(somebody: Somebody) -> None:
    looks, log, clock = sampler()
    clock.now = 100 * MS
    looks.look(target(somebody, since=10 * MS), 60 * MS)
    looks.close()
    (sample,) = log.samples
    assert (sample.t, sample.dur) == (60 * MS, 40 * MS)


def test_a_thread_that_has_ended_is_no_trouble(somebody: Somebody) -> None:
    looks, log, clock = sampler()
    other = Somebody()
    gone = target(other)
    other.end()
    clock.now = 50 * MS
    looks.look(gone, 0)
    looks.close()
    assert log.samples == []


def test_a_thread_that_waits_for_a_lock_is_known_to_from_the_first_look(somebody: Somebody) -> None:
    looks, log, clock = sampler()
    clock.now = 6 * MS
    looks.look(target(somebody), 0)
    looks.close()
    assert [sample.state for sample in log.samples] == ["wait"]


def test_the_kernels_cpu_times_of_a_thread() -> None:
    own = ThreadCpu(threading.get_native_id())
    before = own.read()
    if before is None:
        pytest.skip("this kernel keeps no such times")
    until = time.thread_time_ns() + 30 * MS
    while time.thread_time_ns() < until:
        pass
    after = own.read()
    assert after is not None
    assert after.running - before.running >= 20 * MS
    own.close()
    assert own.read() is None
    assert ThreadCpu(None).read() is None


def test_a_sleep_in_the_kernel_is_distinguished_from_the_wait_for_a_lock(somebody: Somebody) -> None:
    here, there = os.pipe()
    reading = threading.Thread(target=os.read, args=(here, 1), daemon=True)
    reading.start()
    try:
        lock, pipe = ThreadCpu(somebody.thread.native_id), ThreadCpu(reading.native_id)
        tries = (os.sched_yield() or pipe.sleeps_elsewhere() for _ in range(10_000))  # it is on its way there
        if not os.access("/proc/self/syscall", os.R_OK) or not any(tries):
            pytest.skip("this kernel does not tell")
        assert not lock.sleeps_elsewhere()
        lock.close()
        pipe.close()
    finally:
        os.write(there, b".")
        reading.join()
        os.close(here)
        os.close(there)
