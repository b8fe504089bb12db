"""Two parts of a program that begin with the same operations: what one did first is not told at the other's lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import xlaprof.runtime as xr
from tests.advice.taken import observe
from tests.runtime.recorded_programs import record
from xlaprof import log
from xlaprof.analysis.model import Finding
from xlaprof.analysis.run import Run
from xlaprof.events import Compile
from xlaprof.runtime.tape import tapes

TURNS = 4


@pytest.fixture(autouse=True, scope="module")
def with_what_is_imported_at_first_use() -> None:
    """The runs' seconds are those of their graphs."""
    pretrain(nn.Linear(8, 1).to("xla"))


@pytest.fixture(autouse=True)
def with_no_trace_of_other_tests() -> None:
    xr.sync()
    for tape in tapes.existing():
        tape.forget()


def batches() -> Iterator[torch.Tensor]:
    for n in range(TURNS):
        yield torch.full((3, 8), 1.0 + n)


def pretrain(body: nn.Module) -> None:
    for _ in range(3):
        for x in batches():
            kept = body(x.to("xla")).square().mean()
            xr.sync()
            del kept


def probe(body: nn.Module, *, barrier: bool) -> None:
    head = nn.Linear(5, 2).to("xla")
    seen = torch.zeros((), device="xla")
    for _ in range(3):
        seen.zero_()
        if barrier:
            xr.sync()
        for x in batches():
            features = body(x.to("xla"))
            scores = head(features).softmax(1)
            seen += scores.amax(1).sum()
            xr.sync()
            del features, scores


def findings(path: Path) -> list[Finding]:
    run = Run()
    run.feed_all(log.read(path))
    return [one for one in run.report(str(path)).findings if one.kind == "recompile"]


def program(*, barrier: bool) -> None:
    torch.manual_seed(0)
    body: Any = nn.Sequential(nn.Flatten(), nn.Linear(8, 5), nn.Tanh()).to("xla")
    xr.sync()
    with torch.no_grad():
        pretrain(body)
        probe(body, barrier=barrier)


def test_what_begins_a_pass_is_told_at_its_own_line_after_another_phase_of_the_same_layers(tmp_path: Path) -> None:
    recorded = record(tmp_path / "run.log", lambda: program(barrier=False))
    (diff,) = [one.diff for one in recorded.of(Compile) if one.diff is not None and one.diff.total and one.diff.against]
    assert (diff.added, diff.removed) == (0, 1), "the layers are the same, whoever recorded them first"
    (block,) = [one.block for one in diff.differences if one.block is not None]
    assert recorded.code(block.stack) == "seen.zero_()"
    (finding,) = findings(tmp_path / "run.log")
    assert finding.place.code == "seen.zero_()"
    assert "directly before the loop" in finding.advice


def test_the_barrier_that_is_advised_leaves_one_graph_of_the_loop(tmp_path: Path) -> None:
    before = observe(lambda: program(barrier=False), tmp_path / "False.log").of(Compile)
    after = observe(lambda: program(barrier=True), tmp_path / "True.log").of(Compile)
    assert max(one.ops for one in after) < max(one.ops for one in before)
    assert findings(tmp_path / "True.log") == []


def test_two_branches_of_one_loop_stay_two_paths(tmp_path: Path) -> None:
    """A read in the step has a trace of its own, which shares its lines with the step's: these are the step's own."""

    def story() -> None:
        x = torch.ones(3, 8).to("xla")
        for step in range(8):
            y = x * 1.5
            if step % 3 == 2:
                y = y.sin()
                y = y.exp()
            else:
                y = y.cos()
                y = y.exp()
            y.sum().item()
            kept = y.tanh()
            xr.sync()
            del kept

    recorded = record(tmp_path / "run.log", story)
    paths = [one.diff for one in recorded.of(Compile) if one.diff is not None and one.diff.added]
    assert paths
    assert {(one.added, one.removed) for one in paths} == {(2, 2)}, "exp() of another line is another operation"


def test_a_barrier_before_sums_are_cleared_is_not_all_that_makes_another_graph(tmp_path: Path) -> None:
    """Had each step that barrier, the step after the sums are cleared would still begin with clearing them."""

    def story() -> None:
        total = torch.zeros((), device="xla")
        for step in range(9):
            loss = (torch.ones(3, 8).to("xla") * 1.5).sum()
            xr.sync()
            total += loss
            if step % 4 == 3:
                xr.sync()
                total.zero_()

    recorded = record(tmp_path / "run.log", story)
    (cleared,) = [one for one in recorded.changes if "aten::zero_" in (one.old, one.new)]
    assert (cleared.role, cleared.added, cleared.removed) == ("", 1, 1)
    assert (recorded.code(cleared.stack), recorded.code(cleared.condition)) == ("total.zero_()", "if step % 4 == 3:")
