"""compile: a function is one graph, run where it ends; what would cut it, or make another graph of it, is told."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import xlaprof.runtime as xr
from xlaprof.runtime.modes import sessions
from xlaprof.runtime.tape import mode

from ..counting import counted  # noqa: TID252


def _line(mark: str) -> int:
    """The line of this file that ends with ``# mark``."""
    with open(__file__) as text:
        return next(n for n, line in enumerate(text, 1) if line.rstrip().endswith(f"# {mark}"))


def cos_sin(x: torch.Tensor) -> torch.Tensor:
    return torch.cos(torch.sin(x))


def test_a_function_is_one_graph_in_eager_mode(eager: None) -> None:
    x = torch.full((5, 5), 0.5).to("xla") * 5
    compiled = xr.compile(cos_sin)
    with counted() as counts:
        y = compiled(x)
    assert (counts.compiles, counts.runs, counts["EagerOpExecuteTime"]) == (1, 1, 0)
    assert counts["MarkStep"] == 2
    assert xr.is_eager_mode()
    with counted() as counts:
        z = compiled(compiled(x))
    assert (counts.compiles, counts.runs) == (0, 2)
    torch.testing.assert_close(y.cpu(), cos_sin(x.cpu()))
    torch.testing.assert_close(z.cpu(), cos_sin(cos_sin(x.cpu())))


def test_it_is_a_decorator_a_context_and_takes_methods_and_modules() -> None:
    class Thing:
        scale = 2.0

        @xr.compile
        def bare(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

        @xr.compile(full_graph=True, name="called")
        def called(self, x: torch.Tensor) -> torch.Tensor:
            assert mode.graph_name == "called"
            return x + self.scale

    x = torch.ones(3).to("xla")
    thing, linear = Thing(), nn.Linear(3, 2).to("xla")
    assert thing.bare.__name__ == "bare"
    assert thing.bare(x).tolist() == [2, 2, 2]
    assert thing.called(x).tolist() == [3, 3, 3]
    with counted() as counts, xr.compile():
        y = linear(x)
    assert counts.runs == 1
    assert torch.equal(xr.compile(linear)(x).cpu(), y.cpu())
    assert mode.graph_name == ""


def test_what_was_pending_is_a_graph_of_its_own() -> None:
    xr.sync()
    x = torch.ones(7).to("xla") * 0.3
    with counted() as counts:
        y = xr.compile(cos_sin)(x)
    assert counts.runs == 2
    assert y._storage.array is not None


def test_a_training_step_is_one_graph_and_learns_as_on_the_cpu(eager: None) -> None:
    def losses(device: str, wrap: Callable[[Any], Any]) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))
        x, y = torch.randn(8, 4), torch.randn(8, 1)
        model, x, y = model.to(device), x.to(device), y.to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = wrap(step)
        return [run().item() for _ in range(4)]

    with counted() as counts:
        here = losses("xla", xr.compile)
    assert here == pytest.approx(losses("cpu", lambda f: f), abs=1e-5)
    assert counts.runs == 4
    assert counts.compiles == 1  # what the optimizer makes in its first step is an input already


# -- full_graph -----------------------------------------------------------------------------------------------


def reads(x: torch.Tensor) -> torch.Tensor:
    y = torch.sin(x)
    if y.sum() > 0:  # the read
        return y
    return torch.cos(x)


@pytest.mark.parametrize("at_once", [False, True])
def test_a_read_cuts_a_graph_that_is_to_be_whole(at_once: bool) -> None:
    with xr.eager_mode_context(at_once):
        x = torch.ones(4).to("xla") * 0.5
        with pytest.raises(RuntimeError) as caught:
            xr.compile(reads, full_graph=True)(x)
        text = str(caught.value)
        assert text.startswith("Unexpected execution happens inside the compiled function, exiting\n")
        assert "reads is to be one graph" in text
        assert f"aten::_local_scalar_dense at {__file__}:{_line('the read')}" in text
        assert f"the value of aten::gt at {__file__}:{_line('the read')}" in text
        assert xr.is_eager_mode() is at_once
        torch.testing.assert_close(xr.compile(reads)(x).cpu(), torch.sin(x.cpu()))


def test_a_fallback_and_a_barrier_cut_it_too_but_reading_an_input_does_not() -> None:
    x = torch.tensor([0.5, 2.0]).to("xla")

    @xr.compile(full_graph=True)
    def falls_back() -> torch.Tensor:
        return torch.linalg.eig(torch.diag(x * 3))[0]

    @xr.compile(full_graph=True)
    def cuts() -> torch.Tensor:
        y = x + 0.5
        xr.sync()
        return y * 2

    @xr.compile(full_graph=True)
    def looks() -> torch.Tensor:
        return x * 3 if x.tolist()[0] < 1 else x

    with pytest.raises(RuntimeError, match=r"aten::linalg_eig at .*test_compile.py"):
        falls_back()
    with pytest.raises(RuntimeError, match=r"but a barrier at .*test_compile.py"):
        cuts()
    assert looks().tolist() == [1.5, 6.0]


# -- max_different_graphs --------------------------------------------------------------------------------------


def exceeded(f: Callable[..., Any], limit: int, *calls: tuple[Any, ...]) -> str:
    """What the last of ``calls`` is refused with; the others are not."""
    for arguments in calls[:-1]:
        xr.compile(f, max_different_graphs=limit)(*arguments)
    with pytest.raises(RuntimeError) as caught:
        xr.compile(f, max_different_graphs=limit)(*calls[-1])
    xr.sync()
    return str(caught.value)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.linspace(0, 1, 10).to("xla")


def test_another_shape_is_another_graph(x: torch.Tensor) -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x + x

    text = exceeded(twice, 1, (x,), (x,), (torch.rand(5).to("xla"),))
    assert text.splitlines()[:3] == [
        "Maximum number of different graphs allowed per function exceeded: 1",
        "Got: [] aten::add, xla_shape=f32[5]{0}, dynamic_dims: ()",
        "Expected: [] aten::add, xla_shape=f32[10]{0}, dynamic_dims: ()",
    ]
    assert "twice: input of aten::add changed from f32[10] to f32[5]" in text
    assert __file__ in text


def branches(x: torch.Tensor, step: int) -> torch.Tensor:
    r = x + x
    if step == 0:
        return r * 2
    if step == 1:
        return r + x
    return r if step == 2 else r / 3


def test_another_operation_is_another_graph(x: torch.Tensor) -> None:
    def f(x: torch.Tensor, step: int) -> torch.Tensor:
        return branches(x, step)

    text = exceeded(f, 2, (x, 0), (x, 1), (x, 0), (x, 3))
    assert text.splitlines()[:5] == [
        "Maximum number of different graphs allowed per function exceeded: 2",
        "Got: [] aten::div, xla_shape=f32[10]{0}, dynamic_dims: ()",
        "Expected either of:",
        "  - [] aten::mul, xla_shape=f32[10]{0}, dynamic_dims: ()",
        "  - [] aten::add, xla_shape=f32[10]{0}, dynamic_dims: ()",
    ]


def test_an_earlier_end_is_another_graph_and_so_is_a_later_one(x: torch.Tensor) -> None:
    def f(x: torch.Tensor, step: int) -> torch.Tensor:
        return branches(x, step)

    text = exceeded(f, 1, (x, 0), (x, 2))
    assert text.splitlines()[1:3] == [
        "Reached the end of the function at: [] aten::add, xla_shape=f32[10]{0}, dynamic_dims: ()",
        "Expected: [] aten::mul, xla_shape=f32[10]{0}, dynamic_dims: ()",
    ]

    def g(x: torch.Tensor, step: int) -> torch.Tensor:
        return branches(x, step)

    text = exceeded(g, 1, (x, 2), (x, 0))
    assert text.splitlines()[1:3] == [
        "Got: [] aten::mul, xla_shape=f32[10]{0}, dynamic_dims: ()",
        "Expected: the end of the function",
    ]


def test_a_graph_is_counted_once_however_often_it_comes(x: torch.Tensor) -> None:
    @xr.compile(max_different_graphs=3)
    def f(step: int) -> torch.Tensor:
        return branches(x, step)

    for step in (0, 1, 2, 0, 1, 2):
        f(step)
    with pytest.raises(RuntimeError, match="exceeded: 3"):
        f(3)


def test_sessions_by_name_count_graphs_as_well() -> None:
    """As PyTorch/XLA's own compile uses its detector: the limit is everybody's, sessions are forgotten by name."""
    x = torch.ones(10).to("xla")

    def traced(*sizes: int) -> None:
        for size in sizes:
            xr.sync()
            sessions.start("f")
            y = x[:size] * 2.5
            sessions.end()
            del y

    sessions.set_limit(2)
    try:
        assert sessions.get_limit() == 2
        traced(10, 9, 10, 9)
        with pytest.raises(RuntimeError, match="exceeded: 2"):
            traced(8)
        xr.sync()
        sessions.remove("f")
        traced(8)
        with pytest.raises(RuntimeError, match="no session of the dynamic shape detector was started"):
            sessions.end()
    finally:
        sessions.set_limit(1)
        sessions.remove("f")


# -- nesting, errors -------------------------------------------------------------------------------------------


def test_regions_nest(eager: None) -> None:
    @xr.compile
    def inner(x: torch.Tensor) -> torch.Tensor:
        assert not xr.is_eager_mode()
        return x * 2.5

    @xr.compile(name="outer")
    def outer(x: torch.Tensor) -> torch.Tensor:
        y = inner(x + 0.25)
        assert mode.graph_name == "outer"
        with xr.step():
            z = y * 1.5
        return z - 0.75

    x = torch.ones(3).to("xla")
    with counted() as counts:
        y = outer(x)
    assert counts.runs == 4  # what is recorded in each region is a graph of its own
    assert y.tolist() == [(1.25 * 2.5) * 1.5 - 0.75] * 3
    assert xr.is_eager_mode()
    region = xr.compile()
    with region, region:
        y = x + 1
    assert y.tolist() == [2, 2, 2]


def test_an_error_inside_leaves_the_mode_as_it_was_and_what_was_recorded_is_there(eager: None) -> None:
    weight = torch.ones(3).to("xla")

    @xr.compile(full_graph=True)
    def fails() -> None:
        weight.add_(0.5)
        raise LookupError("the user's own")

    with pytest.raises(LookupError, match="the user's own"):
        fails()
    assert xr.is_eager_mode()
    assert weight.tolist() == [1.5] * 3
    assert weight.sum().item() == 4.5  # and reading is allowed again


def test_a_function_that_cannot_be_run_says_so_where_it_ends(eager: None) -> None:
    @xr.compile
    def huge() -> torch.Tensor:
        return torch.zeros(1 << 43, device="xla")

    with pytest.raises(torch.OutOfMemoryError, match=re.escape(__file__)):
        huge()
    assert xr.is_eager_mode()
    assert (torch.ones(2).to("xla") + 1).tolist() == [2, 2]
