"""Passes of a loop: whether it has more of them, a layer leaves its pass out, or a number in each is another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import xlaprof.runtime as xr

from .recorded_programs import RecordedProgram, record


@pytest.fixture(autouse=True)
def with_no_trace_of_other_tests() -> None:
    """A new graph is compared with those that ran before: with this test's alone."""
    xr.forget_graphs()


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[Callable[[], object]], RecordedProgram]:
    return lambda story: record(tmp_path / "run.log", story)


def batch(rows: int, width: int) -> torch.Tensor:
    return torch.ones(rows, width)


def test_a_layer_that_returns_early_decides_about_its_pass_of_a_loop_that_has_as_many_always(
    recorded: Callable,
) -> None:
    class Adapter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.up, self.off = nn.Linear(19, 19), nn.Linear(19, 19), False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[-1] != 19:
                raise ValueError("19 are needed")
            if self.off:
                return x
            return x + self.up(self.down(x).tanh())

    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.adapters = nn.ModuleList(Adapter() for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for adapter in self.adapters:
                x = adapter(x)
            return x

    model = Adapted().to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def story() -> None:
        for off in ((), (1,), (0, 2), (0, 1, 2)):
            for n, adapter in enumerate(model.adapters):
                adapter.off = n in off
            optimizer.zero_grad()
            model(batch(4, 19).to("xla")).cosh().sum().backward()
            optimizer.step()
            xr.sync()

    run = recorded(story)
    one_off, two_off, three_off = run.changes[-3:]
    assert [(one.role, one.old, one.new) for one in (one_off, two_off, three_off)] == [
        ("loop", "4 passes", "3 passes"), ("loop", "3 passes", "2 passes"), ("loop", "2 passes", "1 pass"),
    ]  # fmt: skip
    assert {run.code(one.condition) for one in (one_off, two_off, three_off)} == {"if self.off:"}


def test_a_loop_that_calls_one_function_more_often_has_more_passes_whatever_that_may_return_early(
    recorded: Callable,
) -> None:
    def refined(x: torch.Tensor) -> torch.Tensor:
        if x.dim() > 3:
            return x
        return x + x.sinh()

    def story() -> None:
        for turns in (2, 3, 5):
            x = batch(4, 27).to("xla")
            for _ in range(turns):
                x = refined(x)
            xr.sync()
            del x

    run = recorded(story)
    change = run.changes[-1]
    assert (change.role, change.old, change.new, change.condition) == ("loop", "3 passes", "5 passes", 0)
    assert run.code(change.stack) == "for _ in range(turns):"


def test_a_number_that_several_passes_share_is_no_choice_of_passes(recorded: Callable) -> None:
    """How many of each weight are kept rises from graph to graph; the condition holds in every pass of both."""
    weights = [torch.ones(n).to("xla") for n in (40, 40, 24)]

    def story() -> None:
        for share in (0.25, 0.5, 0.75):
            kept = []
            for weight in weights:
                most = int(share * weight.numel())
                if most == 0:
                    continue
                kept.append(weight.topk(most).values.sum())
            total = torch.stack(kept).sum()
            xr.sync()
            del kept, total

    run = recorded(story)
    change = run.changes[-1]
    assert (change.what, change.old, change.new, change.role) == ("argument", "20", "30", "")
    assert run.code(change.stack) == "kept.append(weight.topk(most).values.sum())"


def test_a_barrier_of_the_same_line_that_another_loop_reaches_is_no_other_barrier(recorded: Callable) -> None:
    """A rollout with a barrier in each of its steps: training keeps for the backward pass what evaluation does not."""
    first, weight = (torch.ones(29, 29).to("xla").requires_grad_() for _ in range(2))

    def rollout(x: torch.Tensor) -> torch.Tensor:
        z, states = (x @ first).tanh().exp().sinh(), []
        for _ in range(3):
            z = (z @ weight).tanh()
            states.append(z.exp().sinh())
            xr.sync()
        return torch.stack(states)

    def story() -> None:
        for _ in range(3):
            rollout(batch(4, 29).to("xla")).sum().backward()
            xr.sync()
        with torch.no_grad():
            for _ in range(2):
                rollout(batch(4, 29).to("xla")).sum()
                xr.sync()

    assert "barrier" not in {change.role for change in recorded(story).changes}


def test_a_loop_that_another_part_of_the_program_goes_through_too_has_passes(recorded: Callable) -> None:
    """What two parts of a program record alike has the lines of the first: the barrier of the other cuts no step."""
    weight = torch.ones(29, 29).to("xla") / 29

    def adapted(passes: int) -> torch.Tensor:
        out = batch(3, 29).to("xla")
        for _ in range(passes):
            out = (out @ weight).tanh() - 0.5 * out
        return out.sum()

    def story() -> None:
        for turn in range(6):
            deep = adapted(2 + turn) * 2
            xr.sync()
            del deep
            if turn % 2:  # a pass deeper than any step before
                probed = [adapted(3 + turn) for _ in range(2)]
                xr.sync()
                del probed

    run = recorded(story)
    deeper = [change for change in run.changes if run.code(change.stack) == "for _ in range(passes):"]
    assert len(deeper) >= 5
    assert "barrier" not in {change.role for change in run.changes}
