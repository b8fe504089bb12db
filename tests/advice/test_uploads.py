"""Advice on uploads is taken: what stays is brought to the device once, what is new in a thread that is ahead."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from recording import recording
from torch import nn
from xlaprof.torch_xla.distributed.parallel_loader import MpDeviceLoader

import xlaprof.runtime as xr
from tests.advice.taken import STEPS, Case, take
from xlaprof.analysis.run import Run
from xlaprof.events import TransferToDevice

DEVICE = "xla"
TABLE, BATCH = (40_000, 64), (1 << 16, 64)  # 10 and 16 MB


class Neighbours(nn.Module):
    def __init__(self, *, buffer: bool) -> None:
        super().__init__()
        self.project = nn.Linear(64, 64)
        table = torch.randn(TABLE)
        if buffer:
            self.register_buffer("table", table)
        else:
            self.table = table

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.project(x) @ self.table.to(x.device)[:16].t()


def trained(*, buffer: bool) -> None:
    model = Neighbours(buffer=buffer).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(8, 64).to(DEVICE)).square().mean().backward()
        optimizer.step()
        xr.sync()


def scored(*, once: bool) -> None:
    table = torch.randn(TABLE)
    there = table.to(DEVICE)
    total = torch.zeros(64, device=DEVICE)
    for _ in range(STEPS):
        rows = there if once else table.to(DEVICE)
        total = total + rows[:16].sum(0)
        xr.sync()


def batches() -> Any:
    fill = torch.ones(BATCH)
    return (fill + number for number in range(3 * STEPS))


def in_the_loop() -> None:
    total = torch.zeros(64, device=DEVICE)
    for batch in batches():
        total = total + batch.to(DEVICE).sum(0)
        xr.sync(wait=True)


def brought_ahead() -> None:
    total = torch.zeros(64, device=DEVICE)
    for batch in MpDeviceLoader(batches(), torch.device(DEVICE)):
        total = total + batch.sum(0)
    xr.sync(wait=True)


BUFFERS = [
    Case(
        "forward",
        "upload",
        lambda: trained(buffer=False),
        "Register it in the module's __init__ (self.register_buffer(...))",
        lambda: trained(buffer=True),
        counts=(TransferToDevice,),
    ),
    Case(
        "loop",
        "upload",
        lambda: scored(once=False),
        "Bring it to the device once, before the loop, and use that in the loop",
        lambda: scored(once=True),
        counts=(TransferToDevice,),
    ),
]
AHEAD = [
    Case(
        "batches",
        "upload",
        in_the_loop,
        "Have the next batch brought while this one is computed: ",
        brought_ahead,
        counts=(),
        also=("MpDeviceLoader(loader, device)",),
    )
]


@pytest.mark.parametrize("case", [*BUFFERS, *AHEAD], ids=lambda case: case.name)
def test_the_advice_is_given_and_takes_the_uploads_away(case: Case, tmp_path: Path) -> None:
    taken = take(case, tmp_path)
    before, after = (
        sum(one.dur for one in events.of(TransferToDevice) if one.tid == 1) for events in (taken.before, taken.after)
    )
    assert before - after >= 0.5 * taken.found.gain_s * 1e9  # what was promised


class OfJax(NamedTuple):
    words: str
    wrong: Callable[[], Any]
    right: Callable[[], Any]


def step() -> Any:
    return jax.jit(lambda w, table, x: w + 1e-3 * (x @ table[:64].astype(jnp.float32)).sum(0))


def handed_over() -> None:
    f, w, table, rng = step(), jnp.zeros(64), np.random.default_rng(0).normal(size=TABLE), np.random.default_rng(1)
    for _ in range(150):
        w = f(w, table, rng.normal(size=(8, 64)))
        w.block_until_ready()


def put_once() -> None:
    f, w, table, rng = step(), jnp.zeros(64), np.random.default_rng(0).normal(size=TABLE), np.random.default_rng(1)
    table = jax.device_put(table)
    for _ in range(150):
        w = f(w, table, rng.normal(size=(8, 64)))
        w.block_until_ready()


def new_in_each_call() -> None:
    f, w, rng = step(), jnp.zeros(64), np.random.default_rng(0)
    base = rng.normal(size=BATCH)
    for number in range(60):
        w = f(w, base + number, rng.normal(size=(8, 64)))
        w.block_until_ready()


def put_ahead() -> None:
    f, w, rng = step(), jnp.zeros(64), np.random.default_rng(0)
    base = rng.normal(size=BATCH)
    ahead: Queue[Any] = Queue(maxsize=2)

    def bring() -> None:
        for number in range(60):
            ahead.put(jax.device_put(base + number))

    threading.Thread(target=bring, daemon=True).start()
    for _ in range(60):
        w = f(w, ahead.get(), rng.normal(size=(8, 64)))
        w.block_until_ready()


OF_JAX = [
    OfJax("Call jax.device_put on it once, before the loop, and pass what that returns", handed_over, put_once),
    OfJax("call jax.device_put on it in a thread that is a batch or two ahead", new_in_each_call, put_ahead),
]


@pytest.mark.parametrize("case", OF_JAX, ids=lambda case: case.wrong.__name__)
def test_the_advice_on_programs_of_jax(case: OfJax, tmp_path: Path) -> None:
    told = []
    for name, program in (("before", case.wrong), ("after", case.right)):
        with recording(tmp_path / f"{name}.log") as recorded:
            program()
        told.append(recorded())
    before, after = (
        [one for one in Run().feed_all(one.events).report("run.log").findings if one.kind == "upload"] for one in told
    )
    [finding] = before
    assert case.words in finding.advice
    assert after == []
    sent = [sum(one.bytes for one in done.of(TransferToDevice) if one.tid == 1) for done in told]
    assert sent[1] < sent[0] / 10
