"""Who is kept from the interpreter's lock, or waits for a lock, because of which other thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from test_stack_sampler import MS, Clock, CpuTimes, Log, Somebody, Worker, sampler, target

from xlaprof.events import Sample
from xlaprof.recording.stack_sampler import READER, StackSampler
from xlaprof.recording.thread_cpu import Ran, ThreadCpu


def test_another_thread_that_ran_meanwhile_held_the_lock() -> None:
    """CPU times as the kernel would give them: the one did not run, the other did all the time."""
    looks, _, _ = sampler()
    holder, waiting = Somebody("hog"), Somebody("main")
    ident, native = holder.thread.ident, holder.thread.native_id
    assert ident is not None
    assert native is not None
    assert waiting.thread.ident is not None
    looks._others[native] = (ThreadCpu(native), Ran(-30 * MS, 0), 0)  # it has run 30 ms since
    found = looks._holder(waiting.thread.ident, 40 * MS)
    assert found is not None
    assert found[0] == "hog"
    assert looks._holder(waiting.thread.ident, 80 * MS) is None  # and not since then
    looks.close()
    holder.end()
    waiting.end()


def beside(runs: float, *, asleep: bool = False) -> list[tuple[str, str, int]]:
    """What two looks say of a thread that waits for a lock, while another runs for this share of the time."""
    main, maker = Somebody("main"), Worker("maker")
    cpu_times = {main.thread.native_id: CpuTimes(), maker.thread.native_id: CpuTimes()}
    log, clock = Log(), Clock()
    any_log: Any = log
    looks = StackSampler(any_log, clock, lambda native: cpu_times.get(native) or CpuTimes())
    for moment in (5, 8):
        clock.now = moment * MS
        cpu_times[maker.thread.native_id].ran = round(runs * clock.now)
        cpu_times[main.thread.native_id].asleep = asleep
        looks.look(target(main), 0)
    looks.close()
    for one in (main, maker):
        one.end()
    return [(sample.state, sample.holder, sample.dur // MS) for sample in log.samples]


def test_who_waits_for_a_lock_waits_for_the_thread_that_runs() -> None:
    assert beside(0.8) == [("wait", "", 5), ("wait", "maker", 3)]  # from the second look on it is known who ran
    assert beside(0.1) == [("wait", "", 8)]
    assert beside(0.8, asleep=True) == [("wait", "", 8)]  # for a socket: that is no thread of this process


def test_a_thread_in_a_librarys_own_code_has_no_place_in_the_program() -> None:
    looks, _, _ = sampler()
    parked = threading.Semaphore(0)
    idle = threading.Thread(target=parked.acquire, daemon=True)  # its only frames are of threading
    idle.start()
    try:
        assert idle.ident is not None
        assert looks._users_place(idle.ident) == 0
        assert looks._users_place(threading.get_ident()) == 1
    finally:
        parked.release()
        idle.join()


class Contention:
    """The thread looked at tells something every two milliseconds; another one computes beside it."""

    def __init__(self, hog: str = "hog") -> None:
        self.main, self.hog = Worker("main"), Worker(hog)
        self.cpu_times = {self.main.thread.native_id: CpuTimes(), self.hog.thread.native_id: CpuTimes()}
        self.log, self.clock = Log(), Clock()
        any_log: Any = self.log
        self.samples = StackSampler(any_log, self.clock, lambda native: self.cpu_times.get(native) or CpuTimes())

    def watch(self, late: int, main_runs: float = 0.1, hog_runs: float = 0.9, asleep: bool = False) -> list[Sample]:
        """Looks over 100 ms, each ``late`` ms later than it was to be."""
        pause = self.samples.gap_began()
        while self.clock.now < 100 * MS:
            passed = round(pause * 1e9) + late * MS
            self.clock.now += passed
            main, hog = self.cpu_times[self.main.thread.native_id], self.cpu_times[self.hog.thread.native_id]
            main.ran += round(main_runs * passed)
            main.asleep = asleep
            hog.ran += round(hog_runs * passed)
            pause = self.samples.look(target(self.main, since=self.clock.now - 2 * MS), 0)
        self.samples.close()
        return self.log.samples

    def end(self) -> None:
        self.main.end()
        self.hog.end()


@pytest.mark.parametrize(("ran", "states"), [(1, {"python", "gil"}), (4, {""})])
def test_what_ran_little_since_it_was_last_heard_of_was_kept_out(ran: int, states: set[str]) -> None:
    contended = Contention()
    looks, clock, (main, hog) = contended.samples, contended.clock, contended.cpu_times.values()
    here = target(contended.main)
    looks._read_cpu(0, here.ident)
    looks._holder(here.ident, 0)
    looks.gap_began()
    clock.now = 5 * MS
    looks.look(here._replace(since=4 * MS), 0)  # it does something: nothing to look at
    clock.now, main.ran, hog.ran = 10 * MS, ran * MS, 8 * MS
    looks.look(here._replace(since=5 * MS), 0)
    looks.close()
    assert {one.state for one in contended.log.samples} == states
    contended.end()


@pytest.fixture
def contention() -> Iterator[Contention]:
    one = Contention()
    yield one
    one.end()


def test_a_thread_that_does_much_and_hardly_runs_waits_for_the_lock_that_another_has(contention: Contention) -> None:
    """The looks say so themselves: they come late, for they need the lock, too."""
    samples = contention.watch(late=5)
    held = sum(one.dur for one in samples if one.state == "gil")
    assert {one.holder for one in samples if one.state == "gil"} == {"hog"}
    assert held > 70 * MS
    assert sum(one.dur for one in samples) == samples[-1].t + samples[-1].dur - samples[0].t  # the rest of it: it ran


@pytest.mark.parametrize(
    "otherwise",
    [
        {"late": 0},  # nobody had the lock when the look wanted it
        {"late": 5, "main_runs": 0.9, "hog_runs": 0.0},  # the thread itself had it
        {"late": 5, "hog_runs": 0.05},  # the machine is busy with something else
        {"late": 5, "asleep": True},
    ],
)
def test_who_is_not_kept_from_the_lock_is_not_said_to_be(contention: Contention, otherwise: dict[str, Any]) -> None:
    assert [one for one in contention.watch(**otherwise) if one.state == "gil"] == []


@pytest.mark.parametrize(("name", "theirs"), [(READER, True), ("xlaprof writer", False)])
def test_of_our_own_threads_the_one_that_runs_the_programs_code_may_have_the_lock(name: str, theirs: bool) -> None:
    contention = Contention(name)
    held = {one.holder for one in contention.watch(late=5) if one.state == "gil"}
    assert held == ({READER} if theirs else set())
    contention.end()


def test_of_the_runtimes_loader_the_thread_that_reads_is_reported() -> None:
    looks, log, _ = sampler()
    reader = Somebody(READER)
    name, at = looks._reader()
    assert name == READER
    assert "first_place" in log.func(at)
    reader.end()
