"""Views and in-place writes are functional underneath; nobody may notice (``semantics/`` has the whole of it)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import pytest
import torch

import xlaprof.runtime as xr

from .counting import counted


def test_writes_through_complex_and_bit_views() -> None:
    for make in (
        lambda: torch.zeros(2, 3, dtype=torch.complex64),
        lambda: torch.ones(2, dtype=torch.complex64),
    ):
        expected, ours = make(), make().to("xla")
        for z in (expected, ours):
            torch.view_as_real(z)[..., 1].add_(2.0)
        torch.testing.assert_close(ours.cpu(), expected)
    bits, there = torch.ones(4), torch.ones(4).to("xla")
    for t in (bits, there):
        t.view(torch.int32).bitwise_and_(0x7F800000)
    torch.testing.assert_close(there.cpu(), bits)


def test_a_view_outlives_the_barrier_and_its_base_is_still_its_base() -> None:
    base = torch.zeros(3, 3, device="xla")
    row = base[1]
    xr.sync()
    base.add_(1)
    xr.sync()
    row.mul_(5)
    assert base.tolist() == [[1.0] * 3, [5.0] * 3, [1.0] * 3]


def test_autograd_sees_writes_through_views() -> None:
    grads = []
    for device in ("cpu", "xla"):
        x = torch.arange(12.0, device=device).reshape(3, 4).requires_grad_()
        y = x * 2
        y[0].mul_(3)
        y.t()[1].add_(x.sum())
        (y**2).sum().backward()
        assert x.grad is not None
        grads.append(x.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0])


def test_fresh_memory_can_be_written_piece_by_piece() -> None:
    x = torch.empty(2, 2, device="xla")
    x[0] = 1.0
    x[1] = torch.tensor([2.0, 3.0])
    assert x.tolist() == [[1.0, 1.0], [2.0, 3.0]]


def test_dead_views_are_forgotten_at_barriers() -> None:
    x = torch.ones(4, device="xla")
    for _ in range(20):
        x[:2].sum()
    xr.sync()
    assert not x._storage.views


def test_inference_mode_takes_what_is_composed_of_views_apart() -> None:
    # PyTorch composes these above autograd, which that mode leaves out.
    def story(x: torch.Tensor) -> list[torch.Tensor]:
        with torch.inference_mode():
            return [
                *x.chunk(2, -1),
                *x.tensor_split(3, -1),
                *x.tensor_split([1, 3], -1),
                *x.hsplit(3),
                *x.split([1, 3], -1),
                *torch.meshgrid(x[0, 0], x[0, 1], indexing="ij"),
                x.flatten().reshape(4, -1).movedim(0, 1),
                x.repeat_interleave(2, 0),
            ]

    x = torch.arange(24.0).reshape(2, 3, 4)
    there = x.to("xla")
    xr.sync()
    before = xr.metrics.totals()[0]
    got = story(there)
    assert xr.metrics.totals()[0] == before  # nothing ran, here or on the CPU
    xr.sync()
    for one, expected in zip(got, story(x), strict=True):
        torch.testing.assert_close(one.cpu(), expected)


def test_inference_mode_looks_at_normal_tensors() -> None:
    def story(model: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
        with torch.inference_mode():
            y = model(x.reshape(-1, 4).chunk(2)[1].t().t())
            assert y.is_inference()
            part = x[:, 1]  # a view of a normal tensor is one
            assert not part.is_inference()
            part.add_(1)
            y[0].mul_(2)
        return [x, y]

    torch.manual_seed(5)
    model, x = torch.nn.Linear(4, 3), torch.arange(24.0).reshape(2, 3, 4)
    there = story(copy.deepcopy(model).to("xla"), x.to("xla"))
    for one, expected in zip(there, story(model, x), strict=True):
        torch.testing.assert_close(one.cpu(), expected)


def test_a_loop_of_writes_keeps_no_dead_views() -> None:
    x = torch.zeros(50).to("xla")
    for i in range(50):
        x[i] = i
        assert len(x._storage.views or ()) <= 2
    assert x.tolist() == list(range(50))


@pytest.mark.parametrize("pieces", [list, lambda x: x.split(1), lambda x: x.chunk(6), lambda x: x.unbind()])
def test_a_loop_over_the_pieces_of_a_tensor_is_one_graph_after_the_first(
    pieces: Callable[[torch.Tensor], Sequence[torch.Tensor]],
) -> None:
    timesteps, total = torch.arange(6.0, device="xla"), torch.zeros((), device="xla")
    xr.sync()
    compiles = []
    for t in pieces(timesteps):
        with counted() as counts:
            total = total + t.sum() * 2
            xr.sync()
        compiles.append(counts.compiles)
    assert compiles[2:] == [0] * 4  # the first graph makes all pieces, the second is given one
    assert total.item() == 30.0


_DYING: dict[str, Callable[[torch.Tensor], object]] = {
    "slices": lambda x: (x[:, :2] * x[:, 2:]).mean().item(),
    "split": lambda x: torch.mul(*(x + 1).split(2, 1)).mean().item(),
    "split in sizes": lambda x: torch.add(*(x + 1).split([1, 3], 1)).mean().item(),
    "chunk": lambda x: torch.mul(*(x + 1).chunk(2, 1)).mean().item(),
    "unbind": lambda x: sum((x + 1).unbind()).mean().item(),  # type: ignore[union-attr]
    "iteration": lambda x: sum(row.sum() * 2 for row in x * 3).item(),  # type: ignore[union-attr]
    "tensor_split": lambda x: torch.cat((x + 1).tensor_split(2)).mean().item(),
    "pieces of pieces": lambda x: (x + 1).unbind()[0].split(2)[1].sum().item(),
    "a copy, written to": lambda x: torch.ones(3).to("xla").add_(1).mul(2).sum().item(),
    "a part of a copy, written to": lambda x: torch.ones(3).to("xla")[0].add_(1).mul(2).item(),
    "pieces of a copy, written to": lambda x: torch.ones(4).to("xla").add_(1).split(2)[0].mul_(2).sum().item(),
}


@pytest.mark.parametrize("program", _DYING.values(), ids=_DYING)
def test_what_an_evaluation_leaves_behind_is_not_computed_later(program: Callable[[torch.Tensor], object]) -> None:
    x = torch.ones(3, 4, device="xla")
    xr.sync()
    with torch.no_grad():
        program(x)
    with counted() as counts:
        xr.sync()
    assert counts.runs == 0


def test_pieces_that_were_computed_are_views_still() -> None:
    base = torch.arange(6.0, device="xla")
    first, second, third = base.split(2)
    xr.sync()
    base.mul_(10)
    assert second.tolist() == [20.0, 30.0]
    xr.sync()
    first.add_(1)
    xr.sync()
    third[0] = -1.0
    assert base.tolist() == [1.0, 11.0, 20.0, 30.0, -1.0, 50.0]
    base.resize_(8)
    third.zero_()
    assert base[:6].tolist() == [1.0, 11.0, 20.0, 30.0, 0.0, 0.0]
    assert first.tolist() == [1.0, 11.0]


@pytest.mark.parametrize(
    "there_and_back",
    [
        lambda x: x[0].t().t(),
        lambda x: x.transpose(0, 2).transpose(-1, 0),
        lambda x: x.permute(1, 2, 0).permute(2, 0, 1),
        lambda x: x.permute(1, 2, 0).permute(1, 2, 0),  # somewhere else
        lambda x: x[1].transpose(0, 1).unsqueeze(0).squeeze(0),
    ],
)
def test_rearranged_twice(there_and_back: Callable[[torch.Tensor], torch.Tensor]) -> None:
    expected, ours = torch.arange(24.0).reshape(2, 3, 4), torch.arange(24.0).reshape(2, 3, 4).to("xla")
    for x in (expected, ours):
        part = there_and_back(x)
        part.mul_(2)
        x.add_(1)
        part[0].sub_(3)
    assert there_and_back(ours).stride() == there_and_back(expected).stride()
    torch.testing.assert_close(there_and_back(ours).cpu(), there_and_back(expected))
    torch.testing.assert_close(ours.cpu(), expected)


def test_after_a_barrier_the_gradient_of_a_weight_is_there_to_be_read() -> None:
    # It comes to the weight by two transpositions: a view of the product it is would be computed at every read.
    linear = torch.nn.Linear(6, 4, bias=False).to("xla")
    x = torch.randn(2, 6).to("xla")
    for _ in range(2):  # the second time it is added to what is there
        linear(x).sum().backward()
        xr.sync()
    with counted() as counts:
        torch.testing.assert_close(linear.weight.grad.cpu(), 2 * x.cpu().sum(0).expand(4, 6))
    assert (counts.runs, counts.reads) == (0, 2)
