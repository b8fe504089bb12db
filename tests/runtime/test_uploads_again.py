"""Uploads of the runtime tell whether the line had brought the same data before: lazy, eager, under openxla."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from recording import recording

import xlaprof.runtime as xr
from xlaprof.events import TransferToDevice
from xlaprof.recording import repeats

DEVICE = "xla"
STEPS = 8


@pytest.fixture(autouse=True)
def time_for_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons take no time: on a busy machine theirs is used up, and then a sample decides."""
    monkeypatch.setattr(repeats, "perf_counter_ns", count(step=1_000).__next__)


def told(path: Path, each: Callable[[int], Any]) -> list[tuple[bool, str]]:
    """Of each upload in steps that do ``each``: whether it came again, and what it is."""
    with recording(path / "run.log") as recorded:
        for step in range(STEPS):
            each(step)
            xr.sync()
    done = recorded()
    return [(one.again, done.texts.get(one.what, "")) for one in done.of(TransferToDevice) if one.bytes > 64]


@pytest.fixture(params=["lazy", "eager", "openxla"])
def scored(request: pytest.FixtureRequest) -> Any:
    """Uses an array on the device."""
    if request.param == "openxla":
        yield torch.compile(lambda t: (t * 2).sum(), backend="openxla")
    elif request.param == "eager":
        xr.eager_mode(True)
        yield lambda t: (t * 2).sum()
        xr.eager_mode(False)
    else:
        yield lambda t: (t * 2).sum()


def test_a_table_in_each_step(scored: Any, tmp_path: Path) -> None:
    table = torch.randn(300, 64)
    sent = told(tmp_path, lambda _: scored(table.to(DEVICE)))
    assert [again for again, _ in sent] == [False, False, *[True] * (STEPS - 2)]
    assert {what for again, what in sent if again} == {"f32[300,64]"}


def test_a_table_made_anew_on_the_host(scored: Any, tmp_path: Path) -> None:
    rows = [[float(i * j) for j in range(20)] for i in range(20)]
    sent = told(tmp_path, lambda _: scored(torch.tensor(rows, device=DEVICE)))
    assert [again for again, _ in sent] == [False, *[True] * (STEPS - 1)]


def test_a_new_batch_and_a_buffer_filled_again(scored: Any, tmp_path: Path) -> None:
    rng, buffer = np.random.default_rng(0), torch.empty(300, 64)

    def each(step: int) -> None:
        scored(torch.from_numpy(rng.normal(size=(16, 64)).astype(np.float32)).to(DEVICE))
        buffer.fill_(0)[step] = 1  # most of it is the same
        scored(buffer.to(DEVICE))

    assert not any(again for again, _ in told(tmp_path, each))


def test_bits_that_numpy_has_not(tmp_path: Path) -> None:
    table = torch.randn(300, 64, dtype=torch.bfloat16)
    sent = told(tmp_path, lambda _: table.to(DEVICE).sum())
    assert sent[-1] == (True, "bf16[300,64]")
