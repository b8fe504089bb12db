"""Tensors of several devices in one call, devices that are not there, and tensors of other classes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional
from torch.testing._internal.two_tensor import TwoTensor

from ..test_device import in_a_fresh_process  # noqa: TID252

HERE = torch.ones(2, 2)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.ones(2, 2, device="xla")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x: x < HERE, r"xla:0 and cpu! \(when checking argument for argument other in method aten::lt\)"),
        (
            lambda x: torch.lt(HERE, x),
            r"xla:0 and cpu! \(when checking argument for argument self in method aten::lt\)",
        ),
        (lambda x: x @ HERE, r"xla:0 and cpu! \(when checking argument for argument mat2 in method aten::mm\)"),
        (lambda x: torch.cat([x, HERE]), r"xla:0 and cpu! \(when checking argument for argument tensors"),
        (lambda x: functional.linear(x, HERE), r"xla:0 and cpu!"),
        (lambda x: functional.embedding(torch.tensor([1]), x), r"xla:0 and cpu! .* argument indices in method"),
        (lambda x: torch.ones(2, 2).atan2_(x), r"cpu and xla:0! .* argument other in method aten::atan2_"),
        (lambda x: torch.where(x > 0, x, HERE), r"xla:0 and cpu!"),
        (lambda x: x + HERE.to("meta"), r"xla:0 and meta!"),
        (lambda x: HERE[torch.tensor([0], device="xla")], r"indices should be either on cpu or on the same device"),
    ],
)
def test_mixed_devices(x: torch.Tensor, call: Callable[..., object], says: str) -> None:
    with pytest.raises(RuntimeError, match=says):
        call(x)
    assert x.sum().item() == 4.0


def test_what_pytorch_lets_mix(x: torch.Tensor) -> None:
    assert (x + torch.tensor(2.0)).sum().item() == 12.0
    assert x[torch.tensor([1])].tolist() == [[1.0, 1.0]]
    x[0] = torch.zeros(2)
    assert x.cpu().copy_(x).tolist() == [[0.0, 0.0], [1.0, 1.0]]


def test_gradients_of_another_device(x: torch.Tensor) -> None:
    w = x.clone().requires_grad_()
    with pytest.raises(RuntimeError, match="attempting to assign a gradient with device type 'cpu'"):
        w.grad = torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="expected device xla:0 but got cpu"):
        (w * 2).backward(torch.ones(2, 2))
    assert w.grad is None


def test_devices_that_are_not_there(x: torch.Tensor) -> None:
    for call in (lambda: torch.ones(2, device="xla:7"), lambda: x.to("xla:7"), lambda: HERE.to("xla:7")):
        with pytest.raises(RuntimeError, match=r"xla:7 is no device: this process has 1"):
            call()


def test_two_devices_and_the_barrier_of_both() -> None:
    done = in_a_fresh_process(
        """
        import os
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
        import torch, xlaprof.runtime as xr
        a = torch.ones(1 << 43, device="xla:0"); b = torch.ones(2, device="xla:1") * 3
        try:
            torch.add(b, b, out=torch.empty(2, device="xla:0"))
        except RuntimeError as error:
            print(error)
        try:
            xr.sync()
        except torch.OutOfMemoryError as error:
            print(str(error).split(".")[0])
        print(b.tolist())
        """
    )
    lines = done.stdout.splitlines()
    assert "at least two devices, xla:0 and xla:1!" in lines[0] or "xla:1 and xla:0!" in lines[0], done.stderr
    assert lines[1:] == ["xla:0 out of memory", "[3.0, 3.0]"], done.stderr


def test_tensors_of_other_classes_answer_for_themselves(x: torch.Tensor) -> None:
    pair = TwoTensor(x, x + 1)
    for mixed in (x + pair, pair + x):
        assert isinstance(mixed, TwoTensor)
        assert (mixed.a.sum().item(), mixed.b.sum().item()) == (8.0, 12.0)
