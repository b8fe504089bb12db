"""The wait for a DataLoader's next batch is recorded, in any framework, and nothing of it remains afterwards."""

from __future__ import annotations

from collections import namedtuple
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset
from torch.utils.data.dataloader import _BaseDataLoaderIter

import xlaprof
from xlaprof.events import Batches, DataWait, Stack, Text
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


@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.parametrize("stay", [False, True])
def test_workers_that_are_started_anew_for_each_pass_are_recorded(tmp_path: Path, stay: bool) -> None:
    log = tmp_path / "run.log"
    with xlaprof.record(log):
        loader = DataLoader(range(4), batch_size=2, num_workers=1, persistent_workers=stay)
        for _ in range(3):
            for _ in loader:
                pass
    events = [*read(log)]
    starts = [one for one in events if isinstance(one, Batches) and one.workers]
    assert len(starts) == (0 if stay else 3)
    first = {one.t: one.dur for one in events if isinstance(one, DataWait)}
    assert all((one.workers, first[one.t]) == (1, one.dur) for one in starts)


def to_the_longest(rows: list[Any]) -> Any:
    rows = [row.flatten() for row in rows]
    longest = max(map(len, rows))
    return torch.stack([torch.nn.functional.pad(row, (0, longest - len(row))) for row in rows])


class Collator:
    """Of a library, say: it calls what it was given."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner


@pytest.mark.parametrize(
    "collate", [to_the_longest, partial(to_the_longest), None], ids=["function", "partial", "default"]
)
def test_what_makes_the_batches_is_recorded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collate: Any) -> None:
    monkeypatch.setattr(data_loader, "_WORTH_NS", 0)
    log = tmp_path / "run.log"
    with xlaprof.record(log):
        for _ in DataLoader(Subset(Slow(), range(4)), batch_size=2, collate_fn=collate):
            pass
    events = list(read(log))
    (made,) = [event for event in events if isinstance(event, Batches)]
    (place,) = [event for event in events if isinstance(event, Stack) and event.id == made.made]
    texts = {event.id: event.text for event in events if isinstance(event, Text)}
    code = (Slow.__getitem__ if collate is None else to_the_longest).__code__
    below = 0 if collate is None else 2  # the line with max()
    assert (place.frames[0].line, texts[place.frames[0].func]) == (code.co_firstlineno + below, code.co_qualname)
    assert made.collated is (collate is not None)
    assert made.stack in {event.stack for event in events if isinstance(event, DataWait)}


def test_a_collate_function_within_a_librarys_object_is_found() -> None:
    wrapped = namedtuple("wrapped", "x")(1)  # no callable of the user's
    assert data_loader.users_code(wrapped) is None
    assert data_loader.users_code(Collator(to_the_longest)) is to_the_longest.__code__
