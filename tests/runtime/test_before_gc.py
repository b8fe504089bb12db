"""A full collection, during which nobody can see the device finish, waits a moment for what is about to."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch

import xlaprof
import xlaprof.runtime as xr
from xlaprof.runtime.execution import inflight
from xlaprof.runtime.observing import before_gc

MS = 1_000_000


class Clock:
    """Stands for the module ``time``: sleeping moves it, and ends what is on its way at ``ends``."""

    def __init__(self, ends: int) -> None:
        self.now, self.ends = MS, MS + ends

    def perf_counter_ns(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)

    def busy(self) -> bool:
        return self.now < self.ends


def collect(pause: before_gc._Pause, clock: Clock, takes: int, generation: int = 2) -> int:
    """How long a collection that ``takes`` so many ns was put off, in ns."""
    begin = clock.now
    pause("start", {"generation": generation})
    put_off = clock.now - begin
    clock.now += takes
    pause("stop", {"generation": generation, "collected": 0})
    return put_off


@pytest.mark.parametrize(
    ("ends", "waited"),
    [
        pytest.param(0, 0, id="nothing on its way"),
        pytest.param(201 * MS + MS // 2, MS // 2, id="it ends soon"),
        pytest.param(900 * MS, 2 * MS, id="not for longer than a hundredth of the last collection"),
    ],
)
def test_a_collection_is_put_off_for_what_is_about_to_end(
    monkeypatch: pytest.MonkeyPatch, ends: int, waited: int
) -> None:
    clock, pause = Clock(ends), before_gc._Pause()
    monkeypatch.setattr(before_gc, "time", clock)
    monkeypatch.setattr(inflight, "busy", clock.busy)
    assert collect(pause, clock, takes=200 * MS) == 0  # how long they take is not known before the first
    assert collect(pause, clock, takes=MS, generation=0) == 0
    assert collect(pause, clock, takes=200 * MS) == waited


def test_only_while_recording(tmp_path: Path) -> None:
    callbacks = list(gc.callbacks)
    with xlaprof.record(tmp_path / "run.log"):
        assert before_gc._pause in gc.callbacks
        (torch.ones(3, device="xla") + 1).sum()
        xr.sync()
        gc.collect()
    assert gc.callbacks == callbacks
