"""What cannot be part of a program is cut out of it: operations without a lowering, and the host's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import xlaprof.runtime as xr
from runtime.counting import counted


@torch.library.custom_op("story::cubed", mutates_args=(), device_types="cpu")
def cubed(x: torch.Tensor) -> torch.Tensor:
    """An operator that xla knows nothing of."""
    return torch.from_numpy(x.numpy() ** 3)


@cubed.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_an_operation_without_a_lowering_runs_between_two_programs() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = (x @ w).relu()
        z = cubed(y) + 1
        w.add_(1)  # after the first program has read it
        return z * w.sum(), y

    fast = torch.compile(f, backend="openxla", fullgraph=True)
    x, w = torch.randn(3, 4), torch.randn(4, 4)
    there, weights = x.to("xla"), w.to("xla")
    for _ in range(3):
        expected = f(x, w)
        with counted() as counts:
            results = fast(there, weights)
        for mine, yours in zip(results, expected, strict=True):
            torch.testing.assert_close(mine.cpu(), yours)
        torch.testing.assert_close(weights.cpu(), w)
        assert (counts.runs, counts["story::cubed"]) == (2, 1)
    assert counts.compiles == 0


def test_host_tensors_are_sent_by_the_graph_that_moves_them() -> None:
    @torch.compile(backend="openxla")
    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.to("xla") + b.to("xla")

    a, b = torch.randn(10), torch.randn(10)
    with pytest.warns(UserWarning, match=r"Found tensor with shape torch.Size\(\[10\]\) on cpu"):
        torch.testing.assert_close(add(a, b).cpu(), a + b)
    with counted() as counts:
        result = add(b, a)
    assert (counts.runs, counts["TransferToDeviceTime"]) == (1, 2)
    torch.testing.assert_close(result.cpu(), b + a)


def test_0_dim_host_tensors_mix() -> None:
    fast = torch.compile(lambda x, s: x * s, backend="openxla")
    x = torch.ones(2, device="xla")
    assert fast(x, torch.tensor(2.5)).tolist() == [2.5, 2.5]
    assert fast(x, torch.tensor(3.5)).tolist() == [3.5, 3.5]


def test_constants_of_the_host_are_part_of_the_program() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + torch.tensor([1.0, 2.0]).to(x.device) + torch.arange(2, device=x.device) * torch.tensor(2.5)

    fast = torch.compile(f, backend="openxla")
    for x in (torch.ones(2), torch.zeros(2)):
        assert fast(x.to("xla")).tolist() == f(x).tolist()


def test_results_on_the_host() -> None:
    @torch.compile(backend="openxla", fullgraph=True)
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.cpu() * 2, x + 1

    for value in (1.0, 2.0):
        here, there = f(torch.full((2,), value, device="xla"))
        assert (here.device.type, there.device.type) == ("cpu", "xla")
        assert (here.tolist(), there.tolist()) == ([2 * value] * 2, [value + 1] * 2)


def test_a_graph_of_the_host_stays_there() -> None:
    model = torch.nn.Linear(2, 2)
    fast = torch.compile(model, backend="openxla")
    x = torch.ones(3, 2)
    with counted() as counts, pytest.warns(UserWarning, match="Please move all tensors to xla device"):
        result = fast(x)
    assert result.device.type == "cpu"
    torch.testing.assert_close(result, model(x))
    assert not any(counts.values())


def test_a_model_and_its_input_in_two_places() -> None:
    fast: Any = torch.compile(torch.nn.Linear(2, 2).to("xla"), backend="openxla")
    with pytest.raises(Exception, match="same device"):
        fast(torch.ones(3, 2))
    assert fast(torch.ones(3, 2, device="xla")).shape == (3, 2)
    xr.sync()
