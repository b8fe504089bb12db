"""Running programs: what fails, what is kept between runs, what memory is held."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import jax
import processes
import pytest
import torch
from torch import nn

import xlaprof
import xlaprof.runtime as xr
from xlaprof import events, log

from .counting import counted


def test_a_graph_that_cannot_run_is_told_where_it_was_cut_and_the_runtime_goes_on() -> None:
    xr.sync()
    fine = torch.ones(3).to("xla")
    xr.sync()
    huge = torch.zeros(1 << 43, device="xla")
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 32 TiB; .* aten::zeros at .*test_running.py"):
        xr.sync(wait=True)
    with pytest.raises(torch.OutOfMemoryError, match=r"computation of this tensor failed: .*test_running.py"):
        huge[:3].tolist()
    assert (fine + 1).tolist() == [2.0, 2.0, 2.0]


def test_a_program_that_holds_more_than_its_largest_value_tells_both_sizes() -> None:
    xr.sync()
    huge = torch.randn(1 << 25, 1 << 25, device="xla")
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 1\d PiB; .* f32\[.*\] of 4 PiB \(the rest "):
        xr.sync(wait=True)
    del huge


PROGRAM = """
import sys, torch, xlaprof, xlaprof.runtime as xr
with xlaprof.record(sys.argv[1]):
    x = torch.arange(12.0).to("xla")
    y = (x.sin() * 2.5).sum()
    xr.sync(wait=True)
    print(y.item())
"""


def test_compiled_programs_can_be_kept_between_processes(tmp_path: Path) -> None:
    outputs, cached = [], []
    for run in ("first", "second"):
        path = tmp_path / f"{run}.log"
        kept = {**os.environ, "XLA_PERSISTENT_CACHE_PATH": str(tmp_path / "cache")}
        done = processes.run("-c", PROGRAM, str(path), env=kept)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
        cached.append([e.cached for e in log.read(path) if isinstance(e, events.Compile)])
    assert outputs[0] == outputs[1]
    assert not any(cached[0])
    assert all(cached[1])
    assert cached[1]


def test_a_program_may_end_while_the_device_works() -> None:
    program = """
import torch, xlaprof.runtime as xr
x = torch.randn(1500, 1500).to("xla")
for _ in range(8):
    x = (x @ x) * 1e-3
xr.sync()
"""
    done = processes.run("-c", program)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_dropped_model_is_freed() -> None:
    def train() -> None:
        model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).to("xla")
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 32).to("xla")).sum().backward()
            optimizer.step()
            xr.sync()

    train()  # what programs hold for good (packed scalars) is there after this
    xr.sync(wait=True)
    gc.collect()
    before = len(jax.live_arrays())
    for _ in range(3):
        train()
    xr.sync(wait=True)
    gc.collect()
    assert len(jax.live_arrays()) - before < 3  # of 36 weights and moments; others in this process make some, too


def test_steps_hold_no_more_and_no_more_memory() -> None:
    model = nn.Linear(16, 16).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(4, 16).to("xla")).sum().backward()
        optimizer.step()
        xr.sync(wait=True)

    for _ in range(4):
        step()
    gc.collect()
    arrays = len(jax.live_arrays())
    nodes = xr._tapes.tape().nodes
    for _ in range(50):
        step()
    gc.collect()
    assert len(jax.live_arrays()) < arrays + 25, "not one for every second step; another thread may hold a few"
    assert xr._tapes.tape().nodes == nodes


def test_a_recording_changes_no_result_and_no_count(tmp_path: Path) -> None:
    def losses() -> list[float]:
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Linear(8, 2)).to("xla")
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        out = []
        for step in range(6):
            with xlaprof.StepTrace("train", step_num=step), xlaprof.Trace("all"):
                optimizer.zero_grad()
                loss = model(torch.ones(4, 8).to("xla")).pow(2).sum()
                loss.backward()
                optimizer.step()
                out.append(loss.detach())
                xr.sync()
        return [float(loss) for loss in out]

    losses()
    with counted() as plain:
        expected = losses()
    with counted() as observed, xlaprof.record(tmp_path / "run.log"):
        recorded = losses()
    assert recorded == expected
    for counts in (plain, observed):
        counts.pop("GarbageCollection", None)
    assert observed == plain


class Tower(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.tan() * 2.5


def test_the_program_names_the_users_lines() -> None:
    from xlaprof.runtime.execution.program import cache

    y = Tower()(torch.ones(3, 41).to("xla"))
    xr.sync()
    assert y.shape == (3, 41)
    hlo = next(reversed(cache._programs.values())).compiled.as_text()
    line = Tower.forward.__code__.co_firstlineno + 1
    assert f"Tower/test_running.py:{line}/tan" in hlo
