"""The device loader: batches arrive on the device in order, whatever becomes of the loader or of whoever reads it."""

from __future__ import annotations

import gc
import sys
import threading
import traceback
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from runtime.counting import counted
from torch.utils.data import DataLoader, Dataset, TensorDataset

import xlaprof.runtime as xr
from tests.recording import recording
from xlaprof import events
from xlaprof.runtime.transfer.loader import MpDeviceLoader, ParallelLoader

XLA = torch.device("xla", 0)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("xlaprof loader"):
            gc.collect()  # a kept exception holds the iterator
            thread.join(10)
            assert not thread.is_alive(), f"{thread.name} is still there"


def numbers(count: int) -> list[torch.Tensor]:
    return [torch.full((2,), float(i)) for i in range(count)]


def values(batches) -> list[float]:
    return [batch[0].item() for batch in batches]


class Gate:
    """A loader that gives out a batch each time it is asked to."""

    def __init__(self, batches) -> None:
        self.batches = batches
        self.permits = threading.Semaphore(0)
        self.asked = threading.Semaphore(0)
        self.closed = threading.Event()

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self):
        try:
            for batch in self.batches:
                self.asked.release()
                self.permits.acquire()
                yield batch
        finally:
            self.closed.set()


def test_batches_come_in_order_on_the_device() -> None:
    loader = MpDeviceLoader(numbers(20), XLA)
    assert len(loader) == 20
    for _ in range(2):  # epochs
        batches = list(loader)
        assert {str(b.device) for b in batches} == {"xla:0"}
        assert values(batches) == list(range(20))


def test_each_batch_is_a_barrier_and_eight_are_a_transfer() -> None:
    weight = torch.ones(2, device=XLA)
    xr.sync()
    with counted() as counts:
        for batch in MpDeviceLoader(numbers(8), XLA):
            weight = weight + batch
    # one before each batch, one before the end is found, one at the end
    assert counts["MarkStep"] == 8 + 2
    assert counts.runs == 8
    assert counts["TransferToDeviceTime"] == 1
    assert weight.tolist() == [29.0, 29.0]


def test_batches_per_execution_says_how_many_batches_there_are_to_a_barrier() -> None:
    total = torch.zeros(2, device=XLA)
    xr.sync()
    with counted() as counts:
        for batch in MpDeviceLoader(numbers(8), XLA, batches_per_execution=4):
            total = total + batch
    assert counts["MarkStep"] == 2 + 1
    assert total.tolist() == [28.0, 28.0]


Pair = namedtuple("Pair", "image label")


class Sample:
    def __init__(self, image: torch.Tensor, name: str) -> None:
        self.image = image
        self.name = name


def test_containers_of_all_kinds_are_kept_and_what_is_no_tensor_passes() -> None:
    shared = torch.arange(3)
    batch = {
        "pair": Pair(shared, [torch.tensor(2.5), "cat"]),
        "again": shared,
        "sample": Sample(torch.ones(1, dtype=torch.bool), "a.png"),
        "none": None,
        "numbers": (1, 2.0),
    }
    (sent,) = MpDeviceLoader([batch], XLA)
    assert type(sent["pair"]) is Pair
    assert sent["pair"].image is sent["again"]  # one tensor, sent once
    assert sent["pair"].label[0].item() == 2.5
    assert sent["pair"].label[1:] == ["cat"]
    assert sent["sample"].image.device == XLA
    assert (sent["sample"].name, sent["none"], sent["numbers"]) == ("a.png", None, (1, 2.0))
    assert batch["sample"].image.device.type == "cpu"  # the user's own is as it was


def test_a_0_dim_tensor_is_data_not_a_constant_of_the_graph() -> None:
    x = torch.ones(2, device=XLA)
    xr.sync()
    with counted() as counts:
        for scale in MpDeviceLoader([torch.tensor(v) for v in (0.0, 1.0, 2.0, 3.0)], XLA):
            x = x + scale
    assert counts.compiles == 1


def test_what_the_loader_raises_comes_after_the_batches_before_it_with_its_traceback() -> None:
    def broken():
        yield from numbers(3)
        raise ValueError("the disk is gone")

    batches = iter(MpDeviceLoader(broken(), XLA))
    assert [next(batches)[0].item() for _ in range(3)] == [0.0, 1.0, 2.0]
    with pytest.raises(ValueError, match="the disk is gone") as caught:
        next(batches)
    frames = [frame.name for frame in traceback.extract_tb(caught.tb)]
    assert "broken" in frames


def test_what_cannot_be_uploaded_is_raised_and_the_iteration_is_over() -> None:
    batches = iter(MpDeviceLoader([torch.ones(2), torch.ones(2).to_sparse()], XLA))
    with pytest.raises(RuntimeError, match="cannot live on xla"):
        next(batches)
    with pytest.raises(StopIteration):
        next(batches)


def test_a_loop_that_is_left_early_ends_the_loader() -> None:
    gate = Gate(numbers(100))
    loader = MpDeviceLoader(gate, XLA, device_prefetch_size=1)
    for _ in range(2):
        gate.permits.release()
    for batch in loader:
        assert batch[0].item() == 0.0
        break
    gc.collect()
    for _ in range(100):
        gate.permits.release()
    assert gate.closed.wait(10)


def test_close_lets_everyone_go() -> None:
    gate = Gate(numbers(10))
    parallel = ParallelLoader(gate, [XLA])
    got = []
    reader = threading.Thread(target=lambda: got.append(parallel.next_item(XLA)))
    reader.start()
    gate.asked.acquire()  # the loader's thread waits in the user's code
    for _ in range(10):
        gate.permits.release()
    parallel.close()
    reader.join(10)
    assert got[0] is None or got[0][0].item() == 0.0
    assert gate.closed.is_set()
    assert parallel.next_item(XLA) is None
    parallel.close()


def test_no_more_is_read_ahead_than_was_asked_for() -> None:
    gate = Gate(numbers(50))
    batches = iter(MpDeviceLoader(gate, XLA, loader_prefetch_size=2, device_prefetch_size=1))
    for _ in range(50):
        gate.permits.release()
    assert next(batches)[0].item() == 0.0
    read = 0
    while gate.asked.acquire(timeout=0.2 if read >= 5 else 10):
        read += 1
    # given out, one on the device, one that waits to be put there, two on the host, one that waits to be put there
    assert read <= 7
    assert values(batches) == list(range(1, 50))


def test_several_transfer_threads_keep_the_order() -> None:
    loader = MpDeviceLoader(numbers(50), XLA, host_to_device_transfer_threads=4, device_prefetch_size=2)
    assert values(loader) == list(range(50))
    with pytest.raises(ZeroDivisionError):
        list(MpDeviceLoader((torch.ones(1) * (1 / (9 - i)) for i in range(20)), XLA, host_to_device_transfer_threads=4))


class Squares(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        if i == 7 and getattr(self, "broken", False):
            raise OSError("sample 7 is unreadable")
        return torch.tensor(float(i * i)), i


FORKS = pytest.mark.filterwarnings("ignore:os.fork")


@FORKS
def test_a_dataloader_with_workers() -> None:
    loader = DataLoader(Squares(), batch_size=2, num_workers=1)
    batches = [(x.tolist(), i.tolist()) for x, i in MpDeviceLoader(loader, XLA)]
    assert batches == [([(2.0 * b) ** 2, (2.0 * b + 1) ** 2], [2 * b, 2 * b + 1]) for b in range(4)]


@FORKS
def test_what_a_worker_raises_names_the_sample() -> None:
    squares = Squares()
    squares.broken = True
    with pytest.raises(OSError, match="sample 7 is unreadable"):
        list(MpDeviceLoader(DataLoader(squares, batch_size=2, num_workers=1), XLA))


def test_an_iterable_without_a_length() -> None:
    loader = MpDeviceLoader(iter(numbers(3)), XLA)
    with pytest.raises(TypeError, match=r"has no len\(\)"):
        len(loader)
    assert values(loader) == [0.0, 1.0, 2.0]


def test_an_empty_loader() -> None:
    assert list(MpDeviceLoader([], XLA)) == []


def test_per_device_loader_as_old_scripts_write_it() -> None:
    data = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=2)
    parallel = ParallelLoader(data, [XLA])
    loader = parallel.per_device_loader("xla:0")
    assert len(loader) == 4
    assert [x.tolist() for (x,) in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    with pytest.raises(StopIteration):
        next(loader)


def test_the_wait_for_data_is_in_the_recording_with_the_line(tmp_path: Path) -> None:
    reader = threading.get_ident()

    def slow():
        while "wait_for" not in {f.f_code.co_name for f, _ in traceback.walk_stack(sys._current_frames()[reader])}:
            pass  # nobody waits yet
        yield from numbers(2)

    with recording(tmp_path / "run.log") as recorded:
        batches = iter(MpDeviceLoader(slow(), XLA, device_prefetch_size=1))
        first = next(batches)  # the line
        list(batches)
    log = recorded()
    assert first[0].item() == 0.0
    stacks = {s.id: s for s in log.of(events.Stack)}
    waits = log.of(events.DataWait)
    code = [log.texts[stacks[w.stack].frames[0].code] for w in waits]
    assert "first = next(batches)  # the line" in code
    assert {"cpu_loader.next", "cpu_data_to_xla_device"} <= {name for name, _ in log.scopes}
    sent = log.of(events.TransferToDevice)
    assert [(e.bytes, e.tensors) for e in sent] == [(8, 1), (8, 1)]
