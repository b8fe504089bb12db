"""Views and in-place writes are functional underneath; nobody may notice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import xlaprof.runtime as xr

Step = tuple[str, Callable[[torch.Tensor], torch.Tensor]]

VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "first row": lambda t: t[0] if t.dim() and t.shape[0] else t.view(t.shape),
    "last column": lambda t: t[..., -1] if t.dim() and t.shape[-1] else t.view(t.shape),
    "every other": lambda t: t[::2] if t.dim() else t.view(t.shape),
    "from one": lambda t: t[..., 1:] if t.dim() else t.view(t.shape),
    "transposed": lambda t: t.transpose(0, -1) if t.dim() else t.view(t.shape),
    "unsqueezed": lambda t: t.unsqueeze(0),
    "squeezed": lambda t: t.squeeze(),
    "diagonal": lambda t: t.diagonal() if t.dim() >= 2 else t.view(t.shape),
    "narrowed": lambda t: t.narrow(-1, 0, max(1, t.shape[-1] // 2)) if t.dim() and t.shape[-1] else t.view(t.shape),
    "permuted": lambda t: t.permute(tuple(reversed(range(t.dim())))),
    "half": lambda t: t.chunk(2)[-1] if t.dim() and t.shape[0] else t.view(t.shape),
    "unbound": lambda t: t.unbind(-1)[0] if t.dim() and t.shape[-1] else t.view(t.shape),
    "detached": lambda t: t.detach(),
    "windows": lambda t: t.unfold(0, 2, 2) if t.dim() and t.shape[0] >= 2 else t.view(t.shape),
    "strided": lambda t: t.as_strided((2, 2), (1, 2)) if t.numel() >= 4 else t.view(t.shape),
}

WRITES: dict[str, Callable[[torch.Tensor], object]] = {
    "add": lambda t: t.add_(1.5),
    "scale": lambda t: t.mul_(0.5),
    "fill": lambda t: t.fill_(3.0),
    "zero": lambda t: t.zero_(),
    "itself": lambda t: t.copy_(t * 2 - 1),
    "clamp": lambda t: t.clamp_(-2.0, 2.0),
    "accumulate": lambda t: t.add_(t),
    "assign": lambda t: t.__setitem__(..., 7.25),
    "host values": lambda t: t.copy_(torch.arange(float(t.numel())).reshape(t.shape)),
}


def tell(program: list[tuple[str, int, str]], base: torch.Tensor, barriers: set[int]) -> list[torch.Tensor]:
    """Run ``program`` over ``base``: make a view of an earlier tensor, or write through one."""
    tensors = [base]
    for i, (kind, which, name) in enumerate(program):
        target = tensors[which % len(tensors)]
        if kind == "view":
            tensors.append(VIEWS[name](target))
        else:
            WRITES[name](target)
        if i in barriers and base.is_xla:
            xr.sync()
    return tensors


programs = st.lists(
    st.one_of(
        st.tuples(st.just("view"), st.integers(0, 9), st.sampled_from(sorted(VIEWS))),
        st.tuples(st.just("write"), st.integers(0, 9), st.sampled_from(sorted(WRITES))),
    ),
    max_size=10,
)
shapes = st.sampled_from([(4,), (4, 6), (3, 4), (2, 3, 4), (1, 4), (6, 6)])


def check(program: list[tuple[str, int, str]], shape: tuple[int, ...], barriers: set[int]) -> None:
    start = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    expected = tell(program, start.clone(), set())
    ours = tell(program, start.to("xla"), barriers)
    for mine, theirs in zip(ours, expected, strict=True):
        assert mine.shape == theirs.shape
        torch.testing.assert_close(mine.cpu(), theirs)


@settings(max_examples=25)
@given(programs, shapes, st.sets(st.integers(0, 9), max_size=3))
def test_any_program_of_views_and_writes_gives_what_the_cpu_gives(
    program: list[tuple[str, int, str]], shape: tuple[int, ...], barriers: set[int]
) -> None:
    check(program, shape, barriers)


@pytest.mark.slow
@settings(max_examples=1000)
@given(programs, shapes, st.sets(st.integers(0, 9), max_size=3))
def test_thousands_of_programs(program: list[tuple[str, int, str]], shape: tuple[int, ...], barriers: set[int]) -> None:
    check(program, shape, barriers)


@pytest.mark.parametrize("name", sorted(VIEWS))
@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 4)])
def test_a_write_through_each_view_reaches_the_base_and_its_other_views(name: str, shape: tuple[int, ...]) -> None:
    check([("view", 0, "transposed"), ("view", 0, name), ("write", 2, "add"), ("write", 1, "scale")], shape, {1})


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
    assert not x._cell.views
