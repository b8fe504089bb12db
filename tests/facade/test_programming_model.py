"""What PyTorch/XLA's own tests of its programming model ask for beyond what scripts do."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from runtime.counting import counted
from runtime.test_device import in_a_fresh_process

import xlaprof.torch_xla

import torch_xla  # isort: skip
from torch_xla.experimental import callback  # isort: skip

assert xlaprof.torch_xla
XLAC = torch_xla._XLAC


def test_the_devices_are_opened_before_the_first_tensor() -> None:
    done = in_a_fresh_process(
        """
        import xlaprof.torch_xla
        import torch_xla
        torch_xla._XLAC._init_computation_client()
        from xlaprof.runtime.tape import tapes
        assert tapes.devices.cache_info().currsize == 1
        """
    )
    assert done.returncode == 0, done.stderr


def test_what_was_forgotten_is_nothing_that_waits_for_a_barrier() -> None:
    torch_xla.sync()
    total = torch.ones(3).to("xla") + torch.ones(3).to("xla")
    product = total * 2
    XLAC._xla_sync_multi([product], devices=[])
    assert "aten::add" in XLAC._get_xla_tensors_text([total])
    XLAC._clear_pending_irs("xla:0")
    with counted() as counts:
        assert "aten::add" not in XLAC._get_xla_tensors_text([total])
        torch_xla.sync()
    assert counts.runs == 0


def test_programs_are_forgotten_in_memory_and_on_disk(tmp_path: Path) -> None:
    done = in_a_fresh_process(
        f"""
        import pathlib
        import torch, xlaprof.torch_xla, torch_xla, torch_xla.runtime as xr
        folder = pathlib.Path({str(tmp_path)!r})
        (folder / "of the user").write_text("")
        xr.initialize_cache(str(folder))
        x = torch.ones(3).to("xla")
        double = torch.compile(lambda x: x * 2, backend="openxla")
        double(x), (x + 1).cpu()
        assert xr.get_num_cached_compilation_graph() == 2
        assert len(list(folder.iterdir())) > 1
        count = torch_xla.debug.metrics.counter_value
        assert (count("PersistentCacheMiss"), count("PersistentCacheHit")) == (2, None)
        from xlaprof.runtime.execution import program
        from xlaprof.runtime.tape import tapes
        program.cache.clear(), tapes.tape().forget()
        program.cache._built = 7  # as in another process, where it is the eighth program
        (x + 1).cpu()
        assert (count("PersistentCacheMiss"), count("PersistentCacheHit")) == (2, 1)
        xr.clear_computation_cache()
        assert xr.get_num_cached_compilation_graph() == 0
        assert [file.name for file in folder.iterdir()] == ["of the user"]
        assert double(x).tolist() == (x + 1).tolist() == [2, 2, 2]
        """
    )
    assert done.returncode == 0, done.stderr


def test_a_callback_gets_the_tensor_when_its_value_is_there() -> None:
    reported: list[torch.Tensor] = []
    there = threading.Event()

    def tell(tensor: torch.Tensor) -> None:
        reported.append(tensor)
        there.set()

    x = torch.rand(4, 4, device="xla") @ torch.rand(4, 4, device="xla")
    with pytest.raises(RuntimeError, match=r"nothing computes the tensor yet.*torch_xla.sync\(\) first"):
        callback.on_ready_callback(x, tell)
    torch_xla.sync()
    callback.on_ready_callback(x, tell)
    assert there.wait(60)
    assert reported[0] is x
    assert "Data Handle: None" not in XLAC._get_xla_tensor_debug_info(x)
    with pytest.raises(RuntimeError, match="takes a tensor on xla, got one on cpu"):
        callback.on_ready_callback(torch.ones(2), tell)
