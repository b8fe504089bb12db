"""Tracing time: recording operations, and not what else happens before a barrier is over."""

from __future__ import annotations

from pathlib import Path

import torch
from recording import recording

import xlaprof.runtime as xr
from xlaprof.events import Barrier, Compile


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
