"""``torch.cond``, ``while_loop`` and ``scan``: functions among the arguments, and tensors on ``xla``."""

from __future__ import annotations

import torch
import torch._dynamo
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import xlaprof.runtime as xr

from .counting import counted

assert xr

Pair = tuple[torch.Tensor, torch.Tensor]


def powers(left: torch.Tensor, x: torch.Tensor) -> Pair:
    done: Pair = while_loop(lambda left, x: left > 0, lambda left, x: (left - 1, x * 2), (left, x))
    return done


def test_passes_of_a_loop_share_their_programs() -> None:
    counts = {}
    for passes in (3, 9):
        left, x = torch.tensor(passes), torch.ones(4)
        there = left.to("xla"), x.to("xla")
        with counted() as counts[passes]:
            done = powers(*there)
        assert [t.tolist() for t in done] == [0, [2.0**passes] * 4]
    assert counts[3].compiles <= 3
    assert counts[9].compiles == 0


def test_a_condition_decides_and_gradients_pass() -> None:
    def chosen(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.cond(x.sum() > 3, torch.sin, torch.cos, (x,))
        y.sum().backward()
        assert x.grad is not None
        return x.grad

    for value in (2.0, 0.1):
        expected = chosen(torch.full((3,), value, requires_grad=True))
        torch.testing.assert_close(chosen(torch.full((3,), value, device="xla", requires_grad=True)).cpu(), expected)


def test_a_scan_is_one_graph() -> None:
    x = torch.arange(6.0).reshape(3, 2)
    start, xs = torch.zeros(2).to("xla"), x.to("xla")
    with counted() as counts:
        last, sums = scan(lambda total, new: (total + new, (total + new).clone()), start, xs)
        xr.sync()
    assert counts.runs == 1
    torch.testing.assert_close(sums.cpu(), x.cumsum(0))
    torch.testing.assert_close(last.cpu(), x.sum(0))


def test_compiled_loops_are_the_same_whatever_was_compiled_before() -> None:
    torch._dynamo.reset()
    for scale in (2, 3):  # PyTorch looks at the first call of each graph for what custom operators return
        other = torch.compile(lambda x, by=scale: x * by, backend="openxla")
        assert other(torch.ones(2, device="xla")).tolist() == [scale, scale]
        fast = torch.compile(
            lambda left, x, by=scale: while_loop(lambda n, x: n > 0, lambda n, x: (n - 1, x * by), (left, x)),
            backend="openxla",
        )
        left, x = fast(torch.tensor(3, device="xla"), torch.ones(2, device="xla"))
        assert (left.item(), x.tolist()) == (0, [scale**3] * 2)
