"""Which device is used, and functions on every device: ``torch_xla.runtime``, ``_internal.pjrt``, ``_internal.tpu``."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
import torch

import xlaprof.torch_xla

import torch_xla  # isort: skip
import torch_xla.distributed.xla_backend as backend  # isort: skip
import torch_xla.experimental.pjrt_backend  # isort: skip
import torch_xla.runtime as xr  # isort: skip
from torch_xla._internal import pjrt, tpu  # isort: skip
from torch_xla.experimental import pjrt as experimental_pjrt  # isort: skip

assert xlaprof.torch_xla


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No variable says which device is used."""
    for name in ("PJRT_DEVICE", "PJRT_SELECT_DEFAULT_DEVICE"):
        monkeypatch.setenv(name, "")  # or else what is set in the test would outlive it
        monkeypatch.delenv(name)
    return monkeypatch


def test_the_best_device_is_chosen_and_logged(unset: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert xr.using_pjrt()
    chosen = os.environ["PJRT_DEVICE"]
    assert f"Defaulting to PJRT_DEVICE={chosen}" in caplog.text
    assert xr.device_type() == chosen
    caplog.clear()
    assert xr.using_pjrt()
    assert not caplog.text


def test_unless_it_is_left_open(unset: pytest.MonkeyPatch) -> None:
    unset.setenv("PJRT_SELECT_DEFAULT_DEVICE", "0")
    assert not xr.using_pjrt()
    assert xr.device_type() is None
    with pytest.raises(NotImplementedError, match="set PJRT_DEVICE"):
        xr.xla_device()
    unset.setenv("PJRT_DEVICE", "TPU_C_API")
    assert xr.using_pjrt()
    assert xr.device_type() == "TPU"


def test_it_is_chosen_before_the_runtime_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    monkeypatch.setattr(torch_xla._XLAC, "_xla_runtime_is_initialized", lambda: True)
    xr.set_device_type("CPU")
    with pytest.raises(RuntimeError, match="after XLA runtime is initialized"):
        xr.set_device_type("TPU")
    monkeypatch.setattr(torch_xla._XLAC, "_xla_runtime_is_initialized", lambda: False)
    xr.set_device_type("TOASTER")
    assert os.environ["PJRT_DEVICE"] == "TOASTER"


def test_without_a_tpu_other_devices_take_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tpu.num_available_chips() == 0
    with pytest.raises(OSError, match="this host has no TPU: TPU_ACCELERATOR_TYPE is not set"):
        tpu.version()
    monkeypatch.setenv("CPU_NUM_DEVICES", "3")  # as many as launch starts processes
    assert tpu.num_available_devices() == 3
    monkeypatch.delenv("CPU_NUM_DEVICES")
    assert tpu.num_available_devices() == 1
    monkeypatch.delenv("PJRT_DEVICE", raising=False)
    monkeypatch.setenv("PJRT_SELECT_DEFAULT_DEVICE", "0")
    assert tpu.num_available_devices() == 0


@pytest.mark.parametrize(("device", "generation", "devices"), [("0x0027", 3, 4), ("0x005e", 4, 2), ("0x006f", 6, 2)])
def test_chips_are_found_on_the_bus(
    device: str, generation: int, devices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, vendor in enumerate(("0x1ae0", "0x8086", "0x1ae0")):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "vendor").write_text(f"{vendor}\n")
        (tmp_path / str(number) / "device").write_text(f"{device}\n")
    planted = [str(path) for path in tmp_path.glob("*/vendor")]
    monkeypatch.setattr("glob.glob", lambda pattern: planted)
    assert (tpu.num_available_chips(), tpu.version(), tpu.num_available_devices()) == (2, generation, devices)


def test_a_tpu_described_by_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v5litepod-8")
    monkeypatch.setenv("TPU_PROCESS_BOUNDS", "2,2,1")
    monkeypatch.setenv("TPU_WORKER_ID", "1")
    assert (tpu.get_tpu_type(), tpu.version(), tpu.worker_id()) == ("v5litepod", 5, 1)
    assert (tpu.process_bounds_size(), tpu.task_id()) == (4, None)
    assert tpu.get_tpu_env()["TPU_CHIPS_PER_PROCESS_BOUNDS"] is None
    monkeypatch.setenv("CLOUD_TPU_TASK_ID", "7")
    assert tpu.task_id() == 7


def test_older_names_are_the_same_things() -> None:
    assert experimental_pjrt.run_multiprocess is pjrt.run_multiprocess
    assert experimental_pjrt.world_size is xr.world_size
    assert "xla" in torch.distributed.Backend.backend_list
    assert backend.ProcessGroupXla


def test_threads_are_for_one_device_this_process() -> None:
    reported: list[tuple[int, int, str]] = []
    pjrt.spawn_threads(lambda index, x: reported.append((index, os.getpid(), x)), args=("x",))
    pjrt.spawn(lambda index, x: reported.append((index, os.getpid(), x)), args=("y",), nprocs=1)
    assert reported == [(0, os.getpid(), "x"), (0, os.getpid(), "y")]


def _fails(number: int) -> None:
    raise ArithmeticError(f"planted {number}")


def test_a_function_on_every_device_has_processes_of_its_own_and_raises_here() -> None:
    (there,) = pjrt.run_multiprocess(os.getpid, start_method="forkserver").values()
    assert there != os.getpid()
    with pytest.raises(ArithmeticError, match="planted 7") as raised:
        pjrt.run_multiprocess(_fails, 7, start_method="forkserver")
    assert "in _fails" in raised.value.__notes__[0]
