"""A number that decides which operations PyTorch records, without a condition in the program, is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import xlaprof.runtime as xr
from xlaprof.analysis.diagnosis import cause
from xlaprof.events import Change, Compile
from xlaprof.runtime.tape import tapes

from .recorded_programs import record


@pytest.fixture(autouse=True)
def with_no_trace_of_other_tests() -> None:
    xr.sync()
    for tape in tapes.existing():
        tape.forget()


def entropy(logits: torch.Tensor, target: torch.Tensor, scale: float, by: float) -> torch.Tensor:
    soft = logits.exp().mean() * scale
    return soft + F.cross_entropy(logits, target, label_smoothing=by)


def last(path: Path, program: Callable[[], object]) -> Change:
    run = record(path, program)
    return [change for change in map(cause, run.of(Compile)) if change is not None][-1]


def test_a_number_that_a_function_is_given_is_told_with_both_values(tmp_path: Path) -> None:
    logits, target = torch.randn(4, 61).to("xla"), torch.zeros(4, dtype=torch.long).to("xla")
    xr.sync()

    def story() -> None:
        for step in range(4):
            smoothing = 0.1 if step >= 2 else 0.0
            scale = 0.5 + step / 8  # also changes, elsewhere
            loss = entropy(logits, target, scale, smoothing)
            xr.sync()
            del loss

    change = last(tmp_path / "run.log", story)
    assert (change.what, change.name, change.subject) == ("operation", "by", "by (0.0 before, 0.1 now)")


def test_of_several_variables_that_changed_on_the_line_none_is_named(tmp_path: Path) -> None:
    logits, target = torch.randn(4, 67).to("xla"), torch.zeros(4, dtype=torch.long).to("xla")
    xr.sync()

    def several(scale: float) -> None:
        for step, by in enumerate((0.0, 0.0, 0.1)):
            scale = scale + step / 8
            loss = F.cross_entropy(logits, target, label_smoothing=by) * scale
            xr.sync()
            del loss

    assert last(tmp_path / "several.log", lambda: several(0.5)).name == ""


def test_a_variable_of_the_function_that_still_runs_is_named(tmp_path: Path) -> None:
    logits, target = torch.randn(4, 71).to("xla"), torch.zeros(4, dtype=torch.long).to("xla")
    xr.sync()

    def alone() -> None:
        for by in (0.0, 0.0, 0.1):
            loss = F.cross_entropy(logits, target, label_smoothing=by)
            xr.sync()
            del loss

    assert last(tmp_path / "one.log", alone).subject == "by (0.0 before, 0.1 now)"


class Smoothed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.by, self.turns = 0.0, 0

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, target, label_smoothing=self.by)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Smoothed()

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.inner(logits, target)
        return loss


@pytest.mark.parametrize(
    ("criterion", "owner", "attribute", "named"),
    [
        (Smoothed(), "", "by", "self.by (0.0 before, 0.1 now)"),
        (Model(), "inner", "by", "self.by (0.0 before, 0.1 now)"),
        (torch.nn.CrossEntropyLoss(), "", "label_smoothing", "criterion.label_smoothing (0.0 before, 0.1 now)"),
    ],
    ids=["a module's", "an inner module's", "a library's"],
)
def test_an_attribute_of_a_module_is_named(
    tmp_path: Path, criterion: torch.nn.Module, owner: str, attribute: str, named: str
) -> None:
    width = 73 + len(owner + attribute)
    logits, target = torch.randn(4, width).to("xla"), torch.zeros(4, dtype=torch.long).to("xla")
    xr.sync()

    def story() -> None:
        for step in range(4):
            setattr(criterion.get_submodule(owner), attribute, 0.1 if step >= 2 else 0.0)
            loss = criterion(logits, target)
            xr.sync()
            del loss

    assert last(tmp_path / "run.log", story).subject == named
