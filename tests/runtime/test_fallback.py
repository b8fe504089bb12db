"""What has no lowering runs on the CPU: right, counted, and told with its line."""

from __future__ import annotations

import pytest
import torch

import xlaprof.runtime as xr

from .counting import counted


def test_an_operation_without_a_lowering_is_right_and_counted() -> None:
    matrix = torch.tensor([[2.0, 1.0], [0.0, 3.0]])
    with counted() as counts:
        values = torch.linalg.eigvals(matrix.to("xla"))
        assert values.device.type == "xla"
        assert sorted(values.real.tolist()) == [2.0, 3.0]
    assert counts["aten::linalg_eig"] == 1
    assert xr.metrics.executed_fallback_ops().count("aten::linalg_eig") == 1


def test_its_inputs_stay_pending_and_run_again_at_the_barrier() -> None:
    x = torch.eye(3).to("xla")
    xr.sync()
    y = x * 2.5
    with counted() as counts:
        torch.linalg.eigvals(y)
        xr.sync()
    assert counts.runs == 2
    assert counts.reads == 1
    assert y.cpu().trace().item() == 7.5


def test_what_it_reads_is_one_transfer() -> None:
    a, b = torch.rand(5).to("xla"), torch.rand(5).to("xla")
    with counted() as counts:
        torch.isin(a, b)
    assert counts.reads <= 1


def test_out_arguments() -> None:
    x = torch.tensor([3.0, 1.0, 2.0])
    target = torch.empty(3, device="xla")
    returned = torch.add(x.to("xla"), 1, out=target)
    assert returned is target
    assert target.tolist() == [4.0, 2.0, 3.0]
    values, indices = torch.empty(0, device="xla"), torch.empty(0, dtype=torch.int64, device="xla")
    torch.sort(x.to("xla"), out=(values, indices))
    assert (values.tolist(), indices.tolist()) == ([1.0, 2.0, 3.0], [1, 2, 0])


@pytest.mark.filterwarnings("ignore:index_reduce")
def test_an_in_place_operation_without_a_lowering_writes_its_result() -> None:
    x = torch.tensor([[4.0, 1.0], [1.0, 3.0]])
    there = x.to("xla")
    there.index_reduce_(0, torch.tensor([0, 1], device="xla"), torch.full((2, 2), 2.0, device="xla"), "prod")
    x.index_reduce_(0, torch.tensor([0, 1]), torch.full((2, 2), 2.0), "prod")
    torch.testing.assert_close(there.cpu(), x)


def test_a_failure_on_the_cpu_is_pytorchs_and_the_runtime_goes_on() -> None:
    with pytest.raises(RuntimeError, match="must be batches of square matrices"):
        torch.linalg.eigvals(torch.ones(2, 3, device="xla"))
    assert (torch.ones(2, device="xla") + 1).tolist() == [2.0, 2.0]
