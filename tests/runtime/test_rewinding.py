"""Loops that read: what nothing alive needs is taken back from the trace's end, so turns find their graphs known."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

import xlaprof.runtime as xr
from xlaprof.runtime.tape import tapes
from xlaprof.runtime.tape.rewind import LEFT

from .counting import counted


@pytest.fixture(autouse=True)
def _fresh() -> None:
    gc.collect()
    xr.sync()


def test_turns_of_a_loop_that_reads_follow_the_path_of_the_first_ones() -> None:
    x = torch.arange(8.0, device="xla") + 1.0  # pending throughout
    seen, depths, ends = [], [], []
    with counted() as cost:
        for _ in range(3 * LEFT):
            seen.append((x * 2.0).sum().item())
            depths.append(tapes.tape().node.depth)
            ends.append(tapes.tape().node)
    assert seen == [72.0] * 3 * LEFT
    assert max(depths) <= LEFT + 6, "the trace grows no longer"
    assert len(set(ends)) <= LEFT // 2 + 2, "the same turns again: nothing is built for them"
    assert cost.compiles <= 1
    assert cost["MarkStep"] == 0
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], "and what lives is still there"


def test_inputs_of_a_turn_are_let_go_of_with_it() -> None:
    x = torch.ones(4, device="xla")
    total = 0.0
    for i in range(200):
        batch = torch.full((4,), float(i)).to("xla")
        total += (x + batch).sum().item()
        del batch
    assert total == sum(4.0 + 4.0 * i for i in range(200))
    assert len(tapes.tape().arrays) <= LEFT // 3 + 2  # of 200


def test_numbers_that_vary_do_not_add_up() -> None:
    x = torch.ones(4, device="xla")
    seen = [(x * (0.25 + i)).sum().item() for i in range(200)]
    assert seen == [1.0 + 4.0 * i for i in range(200)]
    assert len(tapes.tape().floats) < LEFT  # of 200


def test_what_lives_keeps_its_value() -> None:
    x = torch.arange(4.0, device="xla")
    view, copy, zeros = x[1:], x.clone(), torch.zeros(4, device="xla")
    for i in range(6 * LEFT):
        (x.sum() + i).item()
        if i == 2 * LEFT:
            copy.add_(10.0)
        if i == 3 * LEFT:
            view.mul_(2.0)  # x: 0, 2, 4, 6
        if i == 4 * LEFT:
            zeros.copy_(x)
    assert x.tolist() == [0.0, 2.0, 4.0, 6.0]
    assert view.tolist() == [2.0, 4.0, 6.0]
    assert copy.tolist() == [10.0, 11.0, 12.0, 13.0]
    assert zeros.tolist() == [0.0, 2.0, 4.0, 6.0]


def test_random_numbers_go_on_where_they_were() -> None:
    def draw() -> list[float]:
        torch.manual_seed(3)
        x = torch.ones(4, device="xla")
        seen = [(torch.rand(4, device="xla") * x).sum().item() for _ in range(LEFT)]
        kept = torch.rand(2, device="xla")
        seen += [torch.rand(4, device="xla").sum().item() for _ in range(LEFT)]
        return [*seen, *kept.tolist()]

    first = draw()
    assert len(set(first)) == len(first), "no number is drawn twice"
    xr.sync()
    assert draw() == first


def test_another_default_dtype_stays() -> None:
    x = torch.ones(3, device="xla")
    before = torch.get_default_dtype()
    try:
        x.sum().item()
        torch.set_default_dtype(torch.float64)
        for _ in range(LEFT):
            assert torch.full((2,), 0.5, device="xla").sum().item() == 1.0
        assert torch.full((2,), 0.5, device="xla").dtype == torch.float64
        assert (x + torch.full((3,), 0.5, device="xla")).dtype == torch.float64
    finally:
        torch.set_default_dtype(before)
    assert torch.full((2,), 0.5, device="xla").dtype == before


def test_sizes_that_values_decide_are_read_once_as_long_as_the_tensor_lives() -> None:
    mask = torch.tensor([True, False, True, True]).to("xla") & True
    x = torch.arange(4.0, device="xla")
    with counted() as cost:
        for _ in range(LEFT):
            x.sum().item()
            assert x[mask].shape == (3,)
    assert cost.reads == LEFT + 1


def test_gradients_are_those_of_the_values_that_were_read_past() -> None:
    weight = torch.tensor([1.0, 2.0], device="xla", requires_grad=True)
    for _ in range(LEFT):
        loss: Any = ((weight * 3.0) ** 2).sum()
        loss.item()
        (weight.detach() * 5.0).sum().item()
        loss.backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [LEFT * 18.0, LEFT * 36.0]


def test_operations_are_counted_once() -> None:
    names = ("xla::mul", "xla::sum", "CreateXlaTensor", "DestroyXlaTensor")
    x = torch.ones(8, device="xla")
    xr.sync()
    before = {name: xr.metrics.counter_value(name) or 0 for name in names}
    for _ in range(50):
        x.add(2.0).mul(3.0).sum().item()
    y = x.sub(1.0)
    xr.sync()
    assert {name: (xr.metrics.counter_value(name) or 0) - before[name] for name in names} == {
        "xla::mul": 50, "xla::sum": 50, "CreateXlaTensor": 50 * 3 + 1, "DestroyXlaTensor": 50 * 3,
    }  # fmt: skip
    assert y.tolist() == [0.0] * 8
