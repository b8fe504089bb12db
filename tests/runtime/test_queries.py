"""What programs ask of a tensor and of its device."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import processes
import pytest
import torch
from torch import nn

import xlaprof.runtime as xr
from xlaprof.runtime.pytorch import torch_module


def test_what_a_tensor_says_of_itself() -> None:
    x = torch.ones(2, 3, device="xla", dtype=torch.float64)
    assert (x.is_xla, x.is_cuda, x.is_cpu, x.is_meta, x.is_sparse, x.is_quantized) == (True, *[False] * 5)
    assert (x.device, x.get_device(), x.type()) == (torch.device("xla:0"), 0, "torch.xla.DoubleTensor")
    assert (x.element_size(), x.itemsize, x.nbytes, x.numel(), torch.numel(x)) == (8, 8, 48, 6, 6)
    assert not x.is_pinned()
    assert not x.is_shared()
    assert x.type(torch.int32).dtype == torch.int32
    assert torch.is_tensor(x)
    assert isinstance(x, torch.Tensor)
    assert not torch.is_storage(x)
    assert isinstance(nn.Parameter(x), nn.Parameter)
    assert isinstance(nn.Buffer(x), nn.Buffer)
    assert hash(x) == hash(x)
    assert 1.0 in x


def test_moves() -> None:
    x = torch.ones(2, device="xla")
    assert x.to("xla") is x
    assert x.to("xla:0") is x
    assert x.to(torch.float32) is x
    assert x.to("xla", copy=True) is not x
    assert torch.ones(1).to(x).device == x.device
    assert x.to(torch.zeros(1, dtype=torch.float64)).device.type == "cpu"
    assert x.to("cpu", torch.int64).tolist() == [1, 1]
    assert x.to("meta").is_meta
    assert x.to(memory_format=torch.preserve_format) is x
    with pytest.raises((AssertionError, RuntimeError), match="CUDA"):
        x.cuda()
    with pytest.raises(RuntimeError, match=r"cannot pin 'torch\.xla\.FloatTensor' only dense CPU tensors"):
        x.pin_memory()


def test_the_module_of_the_device() -> None:
    xla = torch.get_device_module("xla")
    assert xla is torch.get_device_module(torch.device("xla:0"))
    assert xla.is_available()
    assert xla.device_count() == xr.device_count()
    assert xla.current_device() == 0
    assert xla.get_device_name("xla:0")
    assert torch.bfloat16 in xla.get_amp_supported_dtype()
    with xla.device(0):
        assert torch.ones(1, device="xla").device.index == 0
    with pytest.raises(RuntimeError, match="xla:9 is no device"):
        xla.set_device(9)
    with pytest.raises(ValueError, match="Expected a xla device"):
        xla.get_device_name("cpu")
    xla.synchronize()


def test_memory_is_that_of_the_tensors() -> None:
    xla = torch.get_device_module("xla")
    xr.sync(wait=True)
    before = xla.memory_allocated()
    x = torch.ones(1000, 1000).to("xla")
    assert xla.memory_allocated() - before == x.nbytes
    del x
    xla.empty_cache()
    assert xla.memory_allocated() == before


def test_the_default_device() -> None:
    with torch.device("xla"):
        layer = nn.Linear(2, 2)
        made = [
            torch.zeros(2),
            torch.arange(3),
            torch.empty(1),
            torch.tensor([1.0]),
            torch.randn(2),
            torch.as_tensor([1]),
        ]
        assert torch.zeros(1, device="cpu").device.type == "cpu"
    assert {t.device for t in [*layer.parameters(), *made]} == {torch.device("xla:0")}
    torch.set_default_device("xla")
    try:
        assert torch.ones(1).device == torch.get_default_device() == torch.device("xla:0")
        batches = list(torch.utils.data.DataLoader(torch.arange(4), batch_size=2, shuffle=True))
        assert sorted(torch.cat(batches).tolist()) == [0, 1, 2, 3]
    finally:
        torch.set_default_device(None)
    assert torch.ones(1).device.type == "cpu"


def test_it_is_the_accelerator_where_pytorch_has_none() -> None:
    accelerator = torch.accelerator
    assert accelerator.is_available()
    assert accelerator.current_accelerator() == accelerator.current_accelerator(True) == torch.device("xla")
    assert (accelerator.device_count(), accelerator.current_device_index()) == (xr.device_count(), 0)
    accelerator.set_device_index("xla:0")
    with accelerator.device_index(0), accelerator.device_index(None):
        x = torch.ones(1000, device=accelerator.current_accelerator()) + 1
    before = xr.metrics.counter_value("MarkStep") or 0
    accelerator.synchronize(x.device)
    assert (xr.metrics.counter_value("MarkStep") or 0) > before
    assert accelerator.memory_allocated() == accelerator.memory_reserved() >= x.nbytes
    assert accelerator.max_memory_allocated() >= accelerator.memory_allocated()
    accelerator.empty_cache()
    with pytest.raises(NotImplementedError, match="xla has no streams"):
        accelerator.current_stream()


def test_pytorchs_own_code_sees_no_accelerator_without_streams_and_pinned_memory() -> None:
    loader = torch.utils.data.DataLoader(torch.arange(4.0), batch_size=2, pin_memory=True)
    with pytest.warns(UserWarning, match="pin_memory.*no accelerator is found"):
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
    weight = nn.Parameter(torch.ones(2, device="xla"))
    weight.grad = torch.ones(2, device="xla")
    torch.optim.Adam([weight]).step()  # asks whether a graph of the accelerator's is captured
    assert nn.DataParallel(nn.Linear(2, 1))(torch.ones(1, 2)).device.type == "cpu"


def test_pytorchs_own_accelerator_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_module, "_is_available", lambda: True)
    assert torch.accelerator.current_accelerator() is None  # what this PyTorch says


@pytest.mark.parametrize("first", ["torch._dynamo", "xlaprof.runtime"])
def test_a_compiled_function_hears_of_the_accelerator_whatever_was_imported_first(first: str) -> None:
    program = f"""
        import {first}, torch, xlaprof.runtime

        @torch.compile(backend="openxla", fullgraph=True)
        def more(x):
            found = torch.accelerator.is_available() and torch.accelerator.current_accelerator() == torch.device("xla")
            y = x + 1 if found else x - 1
            torch.accelerator.synchronize()
            return y * 2

        print(more(torch.ones(2, device="xla")).tolist())
    """
    command = ["-c", textwrap.dedent(program)]
    if first == "torch._dynamo":  # which has been imported there
        done = processes.run(*command)
    else:
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "[4.0, 4.0]\n"), done.stderr


def test_tensors_are_made_of_tensors() -> None:
    x = torch.arange(4.0, device="xla")
    assert torch.tensor([x[1], x[2]]).tolist() == [1.0, 2.0]
    made = torch.tensor([x[3].long(), 7], device="xla")
    assert (made.device, made.dtype, made.tolist()) == (x.device, torch.int64, [3, 7])
    assert torch.as_tensor(x) is x
    assert torch.asarray(x) is x
    assert torch.ones(1).type_as(x).device == x.device
    assert x.new_tensor([1]).device == x.new_zeros(2).device == x.device
