"""``torch.device("xla")`` is a device like any other."""

from __future__ import annotations

import copy
import io
import re
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import processes
import pytest
import torch
from torch import nn

import xlaprof.runtime as xr

from .counting import counted


def test_tensors_go_there_and_come_back() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    there = x.to("xla")
    assert there.device == torch.device("xla:0")
    assert there.is_xla
    assert there.shape == (2, 3)
    torch.testing.assert_close(there.cpu(), x)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64,
        torch.uint8, torch.bool, torch.complex64, torch.complex128,
    ],
)  # fmt: skip
def test_every_dtype_makes_the_round_trip(dtype: torch.dtype) -> None:
    x = torch.tensor([[0, 1, 2], [3, 100, 5]]).to(dtype)
    assert torch.equal(x.to("xla").cpu(), x)
    assert x.to("xla").dtype == dtype


def _float(t: torch.Tensor) -> torch.Tensor:
    return t.float()


@pytest.mark.filterwarnings("ignore:ComplexHalf|Sparse CSR", "ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize(
    ("make", "what", "way_out", "follow"),
    [
        (lambda x: x.to(torch.complex32), "complex32", "convert to torch.complex64", lambda t: t.to(torch.complex64)),
        (lambda x: x.to(torch.float8_e4m3fnuz), "float8_e4m3fnuz", "convert to torch.float32", _float),
        (lambda x: x.byte().view(torch.bits8), "bits8", "view(torch.uint8)", lambda t: t.view(torch.uint8)),
        (lambda x: torch.quantize_per_tensor(x, 0.5, 0, torch.qint8), "qint8", "dequantize()", torch.dequantize),
        (torch.Tensor.to_sparse, "sparse_coo", "to_dense()", torch.Tensor.to_dense),
        (torch.Tensor.to_sparse_csr, "sparse_csr", "to_dense()", torch.Tensor.to_dense),
    ],
)
def test_what_the_device_has_no_form_for_is_refused_with_a_way_out_that_works(
    make: Callable[..., torch.Tensor], what: str, way_out: str, follow: Callable[..., torch.Tensor]
) -> None:
    tensor = make(torch.eye(2))
    says = rf"^a torch\.{what} tensor cannot live on xla: .*{re.escape(way_out)}"
    with pytest.raises(RuntimeError, match=says):
        torch.zeros(2, 2, device="xla").copy_(tensor)
    if not tensor.is_quantized:  # PyTorch answers .to() of those by itself
        with pytest.raises(RuntimeError, match=says):
            tensor.to("xla")
    device_form = follow(tensor)
    assert torch.equal(device_form.to("xla").cpu(), device_form)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_a_dtype_the_device_lacks_is_refused_where_it_would_appear() -> None:
    refused = r"^a torch\.complex32 tensor cannot live on xla"
    with pytest.raises(RuntimeError, match=refused):
        torch.empty(2, dtype=torch.complex32, device="xla")
    with pytest.raises(RuntimeError, match=refused):
        torch.tensor(1j, dtype=torch.complex32).to("xla")
    with pytest.raises(RuntimeError, match=refused):
        torch.ones(2, device="xla").to(torch.complex32)


def test_64_bit_integers_and_floats_are_exact() -> None:
    big = torch.tensor([2**53 + 1, -(2**62) + 3])
    assert (big.to("xla") + 1).tolist() == [2**53 + 2, -(2**62) + 4]
    third = torch.tensor([1 / 3], dtype=torch.float64)
    assert (third.to("xla") * 3.7).item() == (third * 3.7).item()


def test_jax_keeps_its_own_settings() -> None:
    import jax
    import jax.numpy as jnp

    (torch.ones(3, dtype=torch.float64, device="xla") + 1).cpu()
    assert not jax.config.jax_enable_x64
    assert jnp.arange(3.0).dtype == jnp.float32


def test_the_host_copy_and_the_device_value_share_no_memory() -> None:
    x = torch.ones(4)
    there = x.to("xla")
    x.fill_(7)
    back = there.cpu()
    back.fill_(9)
    assert there.tolist() == [1.0, 1.0, 1.0, 1.0]


def test_factories() -> None:
    for made, expected in [
        (torch.zeros(2, 2, device="xla"), torch.zeros(2, 2)),
        (torch.ones(3, dtype=torch.int64, device="xla"), torch.ones(3, dtype=torch.int64)),
        (torch.full((2,), 3.5, device="xla"), torch.full((2,), 3.5)),
        (torch.arange(1, 9, 3, device="xla"), torch.arange(1, 9, 3)),
        (torch.linspace(0, 1, 5, device="xla"), torch.linspace(0, 1, 5)),
        (torch.eye(3, device="xla"), torch.eye(3)),
        (torch.tensor([[1, 2], [3, 4]], device="xla"), torch.tensor([[1, 2], [3, 4]])),
        (torch.tensor(2.5, device="xla"), torch.tensor(2.5)),
        (torch.hann_window(6, device="xla"), torch.hann_window(6)),
    ]:
        assert made.device.type == "xla"
        torch.testing.assert_close(made.cpu(), expected)


def test_it_prints_as_pytorch_prints_a_device_tensor() -> None:
    assert repr(torch.tensor([1.0, 2.0], device="xla")) == "tensor([1., 2.], device='xla:0')"
    assert repr(torch.ones(1, dtype=torch.float64, device="xla")) == "tensor([1.], device='xla:0', dtype=torch.float64)"
    weight = nn.Parameter(torch.ones(1, device="xla"))
    assert repr(weight) == "Parameter containing:\ntensor([1.], device='xla:0', requires_grad=True)"
    assert repr(weight * 2) == "tensor([2.], device='xla:0', grad_fn=<MulBackward0>)"
    assert f"{torch.tensor(2.5, device='xla'):.1f}" == "2.5"


def test_numpy_wants_the_host_copy_first() -> None:
    x = torch.ones(2, device="xla")
    with pytest.raises(TypeError, match=r"can't convert xla:0 device type tensor to numpy. Use Tensor.cpu\(\)"):
        x.numpy()
    assert np.array_equal(x.cpu().numpy(), np.ones(2, np.float32))


def test_a_module_moves_trains_and_saves() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    there = copy.deepcopy(model).to("xla")
    assert all(p.device.type == "xla" and isinstance(p, nn.Parameter) for p in there.parameters())
    x = torch.randn(3, 4)
    model(x).sum().backward()
    there(x.to("xla")).sum().backward()
    for ours, theirs in zip(there.parameters(), model.parameters(), strict=True):
        assert ours.grad is not None
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad)

    file = io.BytesIO()
    torch.save(there.state_dict(), file)
    file.seek(0)
    assert {v.device.type for v in torch.load(file).values()} == {"xla"}
    file.seek(0)
    on_host = torch.load(file, map_location="cpu")
    assert {v.device.type for v in on_host.values()} == {"cpu"}
    model.load_state_dict(there.state_dict())
    torch.testing.assert_close(model[0].weight, there[0].weight.cpu())


def test_deepcopy_shares_nothing() -> None:
    weight = nn.Parameter(torch.ones(2, device="xla"))
    twin = copy.deepcopy(weight)
    assert isinstance(twin, nn.Parameter)
    with torch.no_grad():
        twin.add_(1)
    assert weight.tolist() == [1.0, 1.0]
    assert twin.tolist() == [2.0, 2.0]


def test_data_is_another_handle_on_the_same_storage() -> None:
    weight = nn.Parameter(torch.ones(2, device="xla"))
    weight.data.mul_(3)
    assert weight.tolist() == [3.0, 3.0]
    weight.data = torch.zeros(3, device="xla")
    assert weight.tolist() == [0.0, 0.0, 0.0]


def test_host_scalars_and_indices_mix() -> None:
    x = torch.arange(4.0, device="xla")
    assert (x + torch.tensor(1.0)).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert x[torch.tensor([2, 0])].tolist() == [2.0, 0.0]


def test_errors_are_pytorchs_and_the_runtime_goes_on() -> None:
    x = torch.ones(2, 3, device="xla")
    with pytest.raises(RuntimeError, match=r"The size of tensor a \(3\) must match the size of tensor b \(4\)"):
        x + torch.ones(4, device="xla")
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        x @ x
    with pytest.raises(IndexError, match="out of bounds"):
        x[5]
    with pytest.raises(RuntimeError, match=r"can't be cast|not possible"):
        torch.ones(2, dtype=torch.int64, device="xla").add_(0.5)
    assert (x.sum() + 1).item() == 7.0


def in_a_fresh_process(program: str, *path: Path) -> subprocess.CompletedProcess[str]:
    setup = "".join(f"import sys; sys.path.insert(0, {str(p)!r})\n" for p in path)
    return processes.run("-c", setup + textwrap.dedent(program))


def test_beside_a_torch_xla_that_came_first_it_refuses(tmp_path: Path) -> None:
    (tmp_path / "torch_xla").mkdir()
    (tmp_path / "torch_xla" / "__init__.py").touch()
    done = in_a_fresh_process("import torch_xla\nimport xlaprof.runtime", tmp_path)
    assert done.returncode == 1
    assert "torch_xla is already imported and owns torch.device('xla')" in done.stderr


def test_a_torch_xla_that_comes_later_is_refused(tmp_path: Path) -> None:
    (tmp_path / "torch_xla").mkdir()
    (tmp_path / "torch_xla" / "__init__.py").touch()
    done = in_a_fresh_process("import xlaprof.runtime\nimport torch_xla", tmp_path)
    assert done.returncode == 1
    assert "torch_xla cannot be imported beside it" in done.stderr


def test_an_accelerator_that_is_not_there_is_named() -> None:
    done = in_a_fresh_process(
        """
        import os
        os.environ["PJRT_DEVICE"] = "TPU"
        import torch, xlaprof.runtime
        torch.ones(1, device="xla")
        """
    )
    assert done.returncode == 1
    assert "PJRT_DEVICE=TPU is not available here (jax has: cpu)" in done.stderr


def test_several_devices() -> None:
    done = in_a_fresh_process(
        """
        import os
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
        import torch, xlaprof.runtime as xr
        a = torch.ones(2, device="xla:0"); b = torch.ones(2, device="xla:1") * 3
        print(xr.device_count(), b.device, (a.to("xla:1") + b).tolist())
        try:
            a + b
        except RuntimeError as error:
            print(error)
        xr.metrics.clear_all()
        a += 1; b += 1
        xr.sync()
        print(xr.metrics.metric_data("ExecuteTime")[0], xr.metrics.counter_value("MarkStep"))
        """
    )
    assert done.stdout.splitlines() == [
        "2 xla:1 [4.0, 4.0]",
        "Expected all tensors to be on the same device, but found at least two devices, xla:0 and xla:1!",
        "2 1",  # one barrier, for both
    ], done.stderr


@pytest.mark.parametrize(
    "program",
    [
        torch.add, torch.sub, torch.rsub, torch.mul, torch.div, torch.floor_divide, torch.fmod, torch.pow,
        lambda a, b: torch.add(a, b[0], alpha=2),
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        lambda a, b: (a.int() & b.int()) | (a.int() << b.int()) ^ b.int(),
        lambda a, b: a.clone().mul_(b),
        lambda a, b: a.half() * b.double(),
        lambda a, b: torch._foreach_mul([a], [b])[0],
    ],
)  # fmt: skip
def test_a_host_tensor_may_be_an_operand_of_arithmetic(program: Callable[..., torch.Tensor]) -> None:
    a, b = torch.rand(2, 3) * 5 + 1, torch.rand(2, 3) * 5 + 1
    expected = program(a, b)
    for first, second in ((a.to("xla"), b), (a, b.to("xla"))):
        with counted() as counts:
            result = program(first, second)
            values = result.cpu()
        torch.testing.assert_close(values, expected)
        assert counts["TransferToDeviceTime"] >= 1


def test_operands_on_the_host_keep_pytorchs_rules() -> None:
    host, there = torch.ones(3), torch.ones(3, device="xla")
    host += there
    assert (host.device.type, host.tolist()) == ("cpu", [2.0] * 3)
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type Long"):
        torch.ones(3, dtype=torch.int64).add_(there)
    with pytest.raises(RuntimeError, match=r"doesn't match the broadcast shape"):
        host.add_(torch.ones(2, 3, device="xla"))
    there[torch.tensor([0, 2])] = torch.tensor([5.0, 7.0])
    assert there.tolist() == [5.0, 1.0, 7.0]
    for other in (torch.maximum, torch.lt, torch.dot):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            other(host, there)


def test_the_device_says_what_is_behind_it() -> None:
    assert xr.device() == torch.device("xla:0")
    assert xr.device_type() in ("CPU", "CUDA", "TPU")
    assert torch.get_device_module("xla").device_count() == xr.device_count()
