"""Another module's turn: a graph that reads, or updates, other parameters than the one before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import xlaprof.runtime as xr

from .recorded_programs import RecordedProgram, record


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[Callable[[], object]], RecordedProgram]:
    return lambda story: record(tmp_path / "run.log", story)


def batch(rows: int, width: int) -> torch.Tensor:
    return torch.ones(rows, width)


def test_a_parameter_of_another_shape_is_reported_where_it_is_used_and_not_where_the_model_was_moved(
    recorded: Callable,
) -> None:
    heads = nn.ModuleList([nn.Linear(23, 2), nn.Linear(23, 5)]).to("xla")
    xr.sync()

    def story() -> None:
        for head in heads:
            out = head(batch(4, 23).to("xla")).sum()
            xr.sync()
            del out

    run = recorded(story)
    change = run.changes[-1]
    assert (change.what, change.made) == ("shape", 0)
    assert run.code(change.stack) == 'out = head(batch(4, 23).to("xla")).sum()'


def test_a_step_that_updates_other_parameters_is_another_models_turn(recorded: Callable) -> None:
    models = nn.Linear(43, 3).to("xla"), nn.Linear(43, 3).to("xla")
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]

    def story() -> None:
        for n in range(4):
            loss = models[n % 2](batch(4, 43).to("xla"))
            (loss.exp().sum() if n % 2 else loss.square().mean()).backward()
            optimizers[n % 2].step()
            optimizers[n % 2].zero_grad()
            xr.sync()
            del loss

    assert recorded(story).changes[-1].role == "turn"


def test_a_step_that_updates_some_of_the_same_parameters_is_no_other_models_turn(recorded: Callable) -> None:
    one, two = nn.Linear(47, 3).to("xla"), nn.Linear(47, 3).to("xla")
    optimizers = [torch.optim.SGD(some, lr=0.1) for some in ([*one.parameters(), *two.parameters()], two.parameters())]

    def story() -> None:
        for n in range(4):
            x = batch(4, 47).to("xla")
            ((two(x) + one(x)).exp().sum() if n % 2 else (one(x) * two(x)).sum()).backward()
            optimizers[n % 2].step()
            optimizers[0].zero_grad()
            xr.sync()

    assert all(change.role != "turn" for change in recorded(story).changes)
