"""However long a recording is, and however little repeats in it, what is kept of it is bounded."""

from __future__ import annotations

import gc
import tracemalloc
from itertools import islice

import pytest

from benchmarks._hostile import hostile
from xlaprof.analysis.fold import distribution, fold
from xlaprof.analysis.run import Run
from xlaprof.analysis.timeline import window
from xlaprof.events import AnyEvent, Barrier, DeviceWait, Hole, TransferFromDevice

MS = 1_000_000


def kept(events: list[AnyEvent], run: Run) -> int:
    """Bytes that ``run`` holds on to more after these."""
    gc.collect()
    tracemalloc.start()
    try:
        run.feed_all(events)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_a_stream_that_never_repeats_fills_its_tables_and_no_more() -> None:
    stream = hostile(places=1_000)
    run = Run().feed_all(islice(stream, 40_000))
    more = kept(list(islice(stream, 10_000)), run)
    most = kept(list(islice(stream, 10_000)), run)
    assert most < 2 * more + 2_000_000
    assert run.events == 60_000
    tables = (run.sites, run.scopes, run.reads, run.fallbacks, run.steps, run.pauses, run.breaks, run.programs)
    assert max(map(len, tables)) <= 20_000
    assert len(run.window.idle.causes) <= 2_100
    assert max(len(run.window.first), len(run.window.splits)) <= 1_025  # names of steps
    assert sum(one.size for one in run.distributions()) <= distribution._BUDGET


def test_what_nothing_settles_does_not_pile_up() -> None:
    run = Run()
    for begin in range(0, 200_000, 2_000):
        run.feed_all(Hole(t=(begin + i) * 2 * MS, dur=MS, before=1, after=2) for i in range(1_000))
        run.feed_all(
            TransferFromDevice(t=(begin + i) * 2 * MS + MS, dur=1_000, wait=0, bytes=4, stack=3) for i in range(1_000)
        )
        run.feed_all(Barrier(t=(begin + i) * 2 * MS, dur=0, tracing=5, stack=4) for i in range(2))
    assert len(run.window.holes) <= 65_536
    assert len(run.window.host.segments) <= 2 * 65_536
    assert len(run.window.tracing_since_step) <= 65_536


def test_a_program_that_never_runs_anything_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "_RELIEVED_EVERY", 100)
    monkeypatch.setattr(window, "GIVE_UP_AT", 1_000)
    run = Run()
    for begin in range(0, 5_000, 100):
        run.feed_all(Hole(t=(begin + i) * 2 * MS, dur=MS, before=1, after=2) for i in range(50))
        run.feed_all(Barrier(t=(begin + i) * 2 * MS + MS, dur=0, tracing=5, stack=4) for i in range(50))
        run.feed_all(DeviceWait(t=0, dur=0, stack=3) for _ in range(100))
    schedule = run.window.schedule
    assert max(len(schedule.holes), len(schedule.recordings), len(schedule.waits)) <= 1_100
