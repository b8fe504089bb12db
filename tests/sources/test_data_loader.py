"""The wait for a DataLoader's next batch is recorded, in any framework, and nothing of it remains afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

import xlaprof
from xlaprof.events import DataWait
from xlaprof.log import read
from xlaprof.sources import data_loader


class Slow(Dataset[Any]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        if index == 5:
            raise LookupError(index)
        return torch.ones(2)


def waits(tmp_path: Path, batches: int) -> list[DataWait]:
    log = tmp_path / "run.log"
    with xlaprof.record(log):
        for n, _ in enumerate(DataLoader(Slow(), batch_size=1), 1):
            if n == batches:
                break
    return [event for event in read(log) if isinstance(event, DataWait)]


def test_each_wait_for_a_batch_is_at_the_line_that_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_loader, "_WORTH_NS", 0)
    before = _BaseDataLoaderIter.__next__
    found = waits(tmp_path, 4)
    assert len(found) == 4
    assert len({event.stack for event in found}) == 1
    assert found[0].stack
    assert _BaseDataLoaderIter.__next__ is before


def test_an_error_of_the_dataset_reaches_the_program(tmp_path: Path) -> None:
    with pytest.raises(LookupError):
        waits(tmp_path, 6)
    assert _BaseDataLoaderIter.__next__.__module__ == "torch.utils.data.dataloader"
