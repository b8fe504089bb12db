"""The watch of a GPU where there is none: what it asks, what it tells of the answers, and no program is disturbed.

A device that is busy when the test says so stands for the GPU: a function in C that is asked in CUDA's place.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import xlaprof
from xlaprof.analysis.run import Run
from xlaprof.events import Device, Execute, Look, Sample, Source, Stack, Step, StepDigest, Text
from xlaprof.recording import recorder
from xlaprof.recording.sampling import Sampler, StepOpened
from xlaprof.sources import registry
from xlaprof.sources.cuda import Cuda
from xlaprof.sources.cuda import watch as watch_module
from xlaprof.sources.cuda.driver import Driver
from xlaprof.sources.cuda.poller import Change, Poller, Unwatched, in_thread, loaded
from xlaprof.sources.cuda.stretches import LONGEST_NS, SHORT_NS, TOGETHER_NS, Stretches
from xlaprof.sources.cuda.waits import WAITING, called
from xlaprof.sources.cuda.watch import Watch

MS = 1_000_000


# -- from changes to stretches


def told(changes: list[Change], end: int, turns: Callable[[int], int] = lambda at: 0) -> list[tuple[int, int, int]]:
    """Of the changes, taken a few at a time, as the watch takes them."""
    stretches, found = Stretches(), []
    for at in range(0, end, 10 * MS):
        until = min(at + 10 * MS, end)
        found += stretches.take([one for one in changes if at <= one.at < until], until, turns(until))
    return [tuple(one) for one in (*found, *stretches.cut(end))]


def test_a_stretch_is_told_once_it_is_over() -> None:
    changes = [Change(5 * MS, True), Change(35 * MS, False), Change(60 * MS, True), Change(62 * MS, False)]
    assert told(changes, 100 * MS) == [(5 * MS, 35 * MS, 1), (60 * MS, 62 * MS, 1)]


def test_one_that_goes_on_is_told_in_parts_and_cut_where_a_step_ends() -> None:
    whole = told([Change(5 * MS, True)], 3 * LONGEST_NS)
    assert (whole[0][0], whole[-1][1]) == (5 * MS, 3 * LONGEST_NS)
    assert all(before[1] == after[0] for before, after in pairwise(whole))
    assert max(end - start for start, end, _ in whole) <= LONGEST_NS + 10 * MS
    parts = told([Change(5 * MS, True)], 100 * MS, lambda at: at // (40 * MS))
    assert parts == [(5 * MS, 40 * MS, 1), (40 * MS, 80 * MS, 1), (80 * MS, 100 * MS, 1)]


def test_short_ones_are_told_together_with_their_sum() -> None:
    changes = [Change(at * MS, bool(at % 2)) for at in range(1, 201)]  # a millisecond each
    found = told(changes, 210 * MS)
    assert sum(end - start for start, end, _ in found) == 100 * MS
    assert len(found) <= 210 * MS / (TOGETHER_NS - SHORT_NS) + 1
    assert sum(count for _, _, count in found) == 100


@given(st.lists(st.integers(1, 40 * MS), min_size=1, max_size=60), st.integers(0, 3))
def test_what_is_told_is_as_busy_as_the_device_was_and_in_order(lengths: list[int], step: int) -> None:
    changes, at, busy, expected = [], 1, True, 0
    for length in lengths:
        changes.append(Change(at, busy))
        expected += length * busy
        at, busy = at + length, not busy
    found = told(changes, at, lambda now: now // (30 * MS) * step)
    assert sum(end - start for start, end, _ in found) == expected
    assert all(before[1] <= after[0] for before, after in pairwise(found))
    assert all(start < end for start, end, _ in found)


# -- what a call is named


def calls(code: str) -> set[str]:
    """The names of all that is called in a line, by every instruction."""
    compiled = compile(code, "<line>", "exec")
    return {called(compiled, at) for at in range(0, len(compiled.co_code), 2)} - {""}


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("loss.item()", {"item"}),
        ("total += model(x)[0].loss.detach().item()", {"model", "detach", "item"}),
        ("rows = outputs.logits.argmax(-1).cpu()", {"argmax", "cpu"}),
        ("torch.cuda.synchronize()", {"synchronize"}),
        ("seen.append(float(loss))", {"append", "float"}),
        ("values = (\n    stack(losses)\n    .mean()\n    .tolist()\n)", {"stack", "mean", "tolist"}),
        ("x = a + b[0]", set()),
    ],
)
def test_a_call_is_named_by_its_instruction(code: str, names: set[str]) -> None:
    assert calls(code) == names


def test_a_condition_is_a_call_that_waits() -> None:
    assert "bool" in calls("if loss > 3:\n    pass")
    assert "bool" in WAITING


# -- asking


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Any:
    library = tmp_path_factory.mktemp("gpu") / "gpu.so"
    source = Path(__file__).with_name("fake_gpu.c")
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    return ctypes.CDLL(str(library))


@pytest.fixture
def device(gpu: Any) -> Iterator[Any]:
    yield gpu
    gpu.set_busy(0), gpu.set_answer(0), gpu.set_capture(0)


@pytest.fixture(scope="module")
def library() -> tuple[Any, Any]:
    return loaded()


def poller(device: Any, library: tuple[Any, Any]) -> Poller:
    query, capturing = (ctypes.cast(one, ctypes.c_void_p).value or 0 for one in (device.query, device.capturing))
    return Poller(library, query, capturing, 1)


def test_each_change_is_found_between_the_moments_at_which_it_was_not_yet_and_already(
    device: Any, library: tuple[Any, Any]
) -> None:
    one = poller(device, library)
    thread = in_thread(one.run, "test")
    device.looked_at(2)
    between = []
    for turn in range(20):
        before = one.read_at
        device.set_busy(not turn % 2)
        device.looked_at(2)
        between.append((before, perf_counter_ns()))
    one.end()
    thread.join()
    changes = list(one.take())
    assert [change.busy for change in changes] == [False, *([True, False] * 10)]
    assert all(before <= change.at <= after for change, (before, after) in zip(changes[1:], between, strict=True))
    assert list(one.take()) == []
    assert one.state == changes[-1]


def test_an_error_ends_the_questions(device: Any, library: tuple[Any, Any]) -> None:
    one = poller(device, library)
    device.set_answer(700)
    one.run()  # it comes back
    assert (one.code, one.state) == (700, None)


def test_nothing_is_asked_while_a_stream_is_captured_that_a_question_would_disturb(
    device: Any, library: tuple[Any, Any]
) -> None:
    one = poller(device, library)
    device.set_capture(906)  # cudaErrorStreamCaptureImplicit
    thread = in_thread(one.run, "test")
    device.looked_at(3)
    asked = device.times_asked()
    device.looked_at(5)
    assert device.times_asked() == asked
    device.set_capture(0)
    device.looked_at(5)
    assert device.times_asked() > asked
    one.end()
    thread.join()


def test_a_fork_comes_between_two_questions(device: Any, library: tuple[Any, Any]) -> None:
    one = poller(device, library)
    thread = in_thread(one.run, "test")
    device.looked_at(2)
    one.hold()
    asked = device.times_asked()
    os.sched_yield()
    assert device.times_asked() == asked
    one.let_go()
    for _ in range(5):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX's, where other tests have imported it
            child = os.fork()
        if not child:
            one.hold()  # the child has it free
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    device.looked_at(3)
    one.end()
    thread.join()


def test_who_sleeps_wakes_when_readings_found_the_device_idle_for_long(device: Any, library: tuple[Any, Any]) -> None:
    one = poller(device, library)
    device.set_busy(1)
    thread = in_thread(one.run, "test")
    device.looked_at(2)
    until = perf_counter_ns() + 20 * MS
    assert one.sleep(until, 5 * MS) >= until  # busy: it was the moment
    device.set_busy(0)
    woke = one.sleep(perf_counter_ns() + 60_000 * MS, 5 * MS)
    state = one.state
    assert state is not None
    assert not state.busy
    assert woke - state.at >= 5 * MS
    one.end()
    thread.join()


def test_no_compiler_is_a_line_that_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        Unwatched, match=r"it takes a C compiler \(cc, gcc, clang, or what CC says\), and none is found"
    ):
        loaded()
    monkeypatch.setenv("CC", str(tmp_path / "none"))
    with pytest.raises(Unwatched, match="none does not run"):
        loaded()
    monkeypatch.setenv("CC", f"{sys.executable} -c 'raise SystemExit(1)'")
    with pytest.raises(Unwatched, match=r"does not compile .*poll\.c: it says nothing"):
        loaded()


# -- a recording


class Known:
    """What the watch asks of CUDA, of the device of this file."""

    def __init__(self, device: Any, library: tuple[Any, Any]) -> None:
        self._device, self._library = device, library
        self.entered: list[int] = []

    def devices(self) -> list[int]:
        return [0]

    def describe(self, device: int) -> tuple[str, int]:
        return "a device", 1

    def poller(self) -> Poller:
        return poller(self._device, self._library)

    def enter(self, device: int) -> None:
        self.entered.append(device)

    def error(self, code: int) -> str:
        return f"error {code}"


class Loss:
    """Its methods are functions in C that wait for the device, and for what the device does beside."""

    def __init__(self, device: Any) -> None:
        self.item, self.synchronize = device.wait_idle, device.wait_elsewhere


def stall(device: Any, ns: int) -> None:
    """Python, for so long, and until the device was looked at."""
    until = perf_counter_ns() + ns
    while perf_counter_ns() < until:
        sum(range(200))
    device.looked_at(2)


def recorded(path: Path, device: Any, library: tuple[Any, Any], program: Callable[[], None]) -> list[Any]:
    with xlaprof.record(path, detail="full"):
        assert recorder.active is not None
        known = Known(device, library)
        watch = Watch(recorder.active, lambda: known, Cuda.name, Cuda.vocabulary)
        device.looked_at(3)  # it is asked
        program()
        watch.stop()
        assert known.entered == [0]
    return list(xlaprof.read(path))


def test_what_kept_the_device_waiting_is_named_with_its_line(
    tmp_path: Path, device: Any, library: tuple[Any, Any]
) -> None:
    spans = []

    def program() -> None:
        for _ in range(12):
            device.set_busy(1)
            begin = perf_counter_ns()
            device.looked_at(10)
            device.set_busy(0)
            spans.append((begin, perf_counter_ns()))
            stall(device, 40 * MS)

    events = recorded(tmp_path / "run.log", device, library, program)
    runs = [one for one in events if isinstance(one, Execute)]
    assert len(runs) == 12
    assert {one.program for one in runs} == {0}
    for one, (begin, end) in zip(runs, spans, strict=True):
        longest = one.end - one.start
        assert begin - 40 * MS < one.start < end  # no later than it was seen, no earlier than the gap before
        assert longest > 0
    devices = [(one.kind, one.platform) for one in events if isinstance(one, Device)]
    assert [one for one in devices if one[1] != "cpu"] == [("a device", "cuda")]  # others' tests use JAX's
    assert "torch.cuda" in [one.name for one in events if isinstance(one, Source)]
    run = Run().feed_all(events)
    seen = {run.resolve(one.stack).func for one in events if isinstance(one, Sample)}
    assert "stall" in seen
    report = run.report()
    busy = sum(one.end - one.start for one in runs) / 1e9
    assert report.idle.busy_s == pytest.approx(busy)
    assert report.idle.idle_s == pytest.approx((runs[-1].end - runs[0].start) / 1e9 - busy)


def test_where_the_host_waits_is_seen_in_the_call(tmp_path: Path, device: Any, library: tuple[Any, Any]) -> None:
    loss, seen = Loss(device), list[Look]()

    def ready() -> None:
        while len(seen) < 2:
            device.looked_at(10)
        device.set_busy(0)

    def program() -> None:
        assert recorder.active is not None
        recorder.active.listen(lambda one: seen.append(one) if getattr(one, "state", "") == "device" else None)
        device.set_busy(1)
        thread = in_thread(ready, "test")
        loss.item()  # the wait
        thread.join()

    events = recorded(tmp_path / "run.log", device, library, program)
    looks = [one for one in events if isinstance(one, Look) and one.state == "device"]
    run = Run().feed_all(events)
    assert looks[: len(seen)] == seen
    assert {run.resolve(one.stack).code for one in looks} == {"loss.item()  # the wait"}
    assert {stack for stack, _ in run.looks_waiting} == {one.stack for one in looks}
    assert not {stack for stack, state in (*run.looks, *run.looks_before) if state == "device"}


def test_an_error_of_the_device_is_said_once_and_what_was_seen_is_told(
    tmp_path: Path, device: Any, library: tuple[Any, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    def program() -> None:
        device.set_busy(1)
        device.looked_at(5)
        device.set_answer(710)
        while any(thread.name == "xlaprof cuda watcher" for thread in threading.enumerate()):
            os.sched_yield()

    events = recorded(tmp_path / "run.log", device, library, program)
    assert capsys.readouterr().err == "xlaprof: the GPU is not watched any more: error 710\n"
    assert len([one for one in events if isinstance(one, Execute)]) == 1


def test_who_waits_for_a_device_without_work_waits_for_another_stream_and_the_watch_ends(
    tmp_path: Path,
    device: Any,
    library: tuple[Any, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch_module, "BEAT_NS", 5 * MS)
    monkeypatch.setattr(watch_module, "_QUIET_NS", 20 * MS)
    loss = Loss(device)

    def ended() -> None:
        while any(thread.name == "xlaprof cuda watcher" for thread in threading.enumerate()):
            os.sched_yield()
        device.end_elsewhere()

    def program() -> None:
        device.set_busy(1)  # what the program did first
        device.looked_at(3)
        device.set_busy(0)
        device.looked_at(3)
        thread = in_thread(ended, "test")
        loss.synchronize()
        thread.join()

    events = recorded(tmp_path / "run.log", device, library, program)
    said = "it works on another stream than the default one, where it seems idle"
    assert capsys.readouterr().err == f"xlaprof: the GPU is not watched any more: {said}\n"
    assert len([one for one in events if isinstance(one, Execute)]) == 1
    assert not [one for one in events if isinstance(one, Look) and one.state == "device"]


# -- attaching


def test_a_program_without_cuda_is_left_alone(tmp_path: Path) -> None:
    waiting: Any = torch.cuda._queued_calls
    before = list(waiting)
    threads = set(threading.enumerate())
    with xlaprof.record(tmp_path / "run.log"):
        torch.ones(3).sum().item()
        assert len(waiting) == len(before) + 1
        assert not [one for one in threading.enumerate() if one not in threads and "cuda" in one.name]
    assert waiting == before
    assert not torch.cuda.is_initialized()
    assert "torch.cuda" not in [one.name for one in xlaprof.read(tmp_path / "run.log") if isinstance(one, Source)]


def test_a_setting_leaves_the_device_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLAPROF_WATCH_GPU", "0")
    before = list(torch.cuda._queued_calls)
    with xlaprof.record(tmp_path / "run.log"):
        torch.ones(3).sum().item()
        assert torch.cuda._queued_calls == before


def test_it_is_found_among_the_sources() -> None:
    assert "torch.cuda" in [one.name for one in registry.live_sources()]


@pytest.mark.skipif(torch.version.cuda is not None, reason="this PyTorch is built for CUDA")
def test_a_pytorch_without_cuda_says_so() -> None:
    with pytest.raises(Unwatched, match="this PyTorch is not built for CUDA"):
        Driver()


# -- steps that are told as sums


def test_steps_shorter_than_what_is_told_of_the_device_add_up() -> None:
    """The device works for 3 of 4 ms in each step, and is told of after every fifth."""
    sampler, written = Sampler(), list[Any]()
    for number in range(1000):
        begin = number * 4 * MS
        sampler.feed([StepOpened(begin, 1)], written.append, written.append)
        if number % 5 == 4:
            work = begin - 12 * MS
            sampler.feed([Execute(number, 0, work, work, work + 15 * MS)], written.append, written.append)
        sampler.feed([Step(1, number, begin, 4 * MS)], written.append, written.append)
    digests = [one for one in written if isinstance(one, StepDigest)]
    assert len(digests) > 900
    assert all(one.busy <= one.dur for one in digests)
    idle = Run().feed_all(written).report().idle
    assert idle.busy_s == pytest.approx(3.0, rel=0.02)
    assert idle.window_s == pytest.approx(4.0, rel=0.01)


def test_waits_are_told_by_line_and_never_longer_than_the_device_was_busy() -> None:
    events = [
        Text(1, "train.py"), Text(2, "train"), Text(3, "loss.item()"),
        Stack(1, [xlaprof.events.Frame(1, 31, 2, 3)]),
        Execute(1, 0, 5_000 * MS, 5_000 * MS, 6_000 * MS),
        *(Look((5_000 + at * 100) * MS, 150 * MS, 1, "device") for at in range(8)),
    ]  # fmt: skip
    (account,) = [one for one in Run().feed_all(events).report().accounts if one.what == "busy"]
    assert account.remark == "The host waited for it at train.py:31: about 1.00 s in all, by 8 looks."
