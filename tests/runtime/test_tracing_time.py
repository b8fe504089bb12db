"""Tracing time: recording operations, and not what else happens before a barrier is over."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from recording import recording

import xlaprof.runtime as xr
from xlaprof.events import Barrier, Compile, Compiling, Hole, Stack
from xlaprof.runtime import clock
from xlaprof.runtime.instruments import host_time
from xlaprof.runtime.observing import observe


def test_compiling_a_graph_is_not_told_as_tracing_too(tmp_path: Path) -> None:
    x = torch.randn(8, 8, device="xla")
    xr.sync()
    with recording(tmp_path / "run.log") as recorded:
        for size in (3, 4):
            ((x[:size] @ x).sin() * 2 + size).sum()
            y = (x[:size] @ x).tanh()
            xr.sync()
            del y
    told = recorded()
    compiles, barriers = told.of(Compile), told.of(Barrier)
    assert len(compiles) == 2
    first, second = barriers
    between = second.t - (first.t + first.dur)
    assert second.t <= compiles[1].t < second.t + second.dur
    assert 0 < second.tracing <= between + second.dur - compiles[1].dur
    begun = told.of(Compiling)
    assert [one.phase for one in begun] == ["lowering", "XLA"] * 2
    assert [one.t - one.spent for one in begun] == [made.t for made in compiles for _ in range(2)]


class Time:
    """The clock of the bookkeeping between events: it stands still until it is told how long something took."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 10**12
        for module in (observe, host_time, clock):
            monkeypatch.setattr(module, "perf_counter_ns", lambda: self.now)
        monkeypatch.setattr(observe, "perf_counter", lambda: self.now / 1e9)

    def pass_ms(self, ms: float) -> None:
        self.now += int(ms * 1e6)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


def test_a_hole_lies_between_two_operations_and_the_rest_is_tracing(tmp_path: Path, time: Time) -> None:
    x = torch.randn(8, 8, device="xla")
    xr.sync()
    with recording(tmp_path / "run.log") as recorded:
        for _ in range(3):
            y = x.sin()
            for _ in range(5):
                time.pass_ms(0.9)
                y = y + 1  # the last before it
            time.pass_ms(4)
            y = y.tanh()  # the first behind it
            time.pass_ms(0.5)
            xr.sync()
    told = recorded()
    holes, barriers = told.of(Hole), told.of(Barrier)
    assert [hole.dur for hole in holes] == [4_000_000] * 3
    lines = {stack.id: told.texts[stack.frames[0].code] for stack in told.of(Stack)}
    assert {lines[hole.before] for hole in holes} == {"y = y + 1  # the last before it"}
    assert {lines[hole.after] for hole in holes} == {"y = y.tanh()  # the first behind it"}
    assert [barrier.tracing for barrier in barriers] == [5 * 900_000 + 500_000] * 3


def test_what_is_set_aside_is_neither_but_what_another_thread_records_meanwhile_is_tracing(time: Time) -> None:
    host_time.arrive(())
    clock.clock.take_tracing()
    with clock.aside():
        time.pass_ms(2)
    assert clock.clock.take_tracing() == 0
    time.pass_ms(0.25)
    with clock.aside():
        time.pass_ms(0.5)
        clock.clock.last = time.now  # an operation of another thread
        time.pass_ms(8)
    assert clock.clock.take_tracing() == 750_000


def test_while_something_is_on_its_way_operations_ask_whether_it_has_ended_and_else_they_do_not(
    tmp_path: Path, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    ends = time.now + 1_000_000

    def poll() -> bool:
        asked.append(time.now)
        return time.now < ends

    x = torch.randn(8, 8, device="xla")
    xr.sync(wait=True)
    monkeypatch.setattr(observe.inflight, "poll", poll)
    with recording(tmp_path / "run.log"):
        begun = time.now
        for _ in range(200):  # 12 us each
            time.pass_ms(0.012)
            x.sin()
    assert [moment - begun for moment in asked] == list(range(12_000, 1_092_001, 108_000))
