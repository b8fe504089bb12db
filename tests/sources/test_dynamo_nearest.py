"""A call fits no version for several reasons: which version comes nearest, and what is told of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.sources.observed import line_of, observing
from xlaprof.events import Recompile

pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def told_twice(words: Any, turns: int) -> Any:
    for _ in range(turns):
        words = words.roll(1)
    return words


def test_a_stride_that_hides_behind_a_number_is_the_cause(tmp_path: Path) -> None:
    """The last words of a text that grows: the version for this number of turns is there, for another stride."""
    fast = torch.compile(told_twice, backend="eager", dynamic=False)
    with observing(tmp_path / "run.log") as found:
        for length, turns in ((8, 2), (9, 1), (10, 1), (11, 1)):
            text = torch.zeros(2, length)
            fast(text[:, -4:], turns)
    first, *later = found[0].of(Recompile)
    assert [(guard.kind, guard.old, guard.new) for guard in first.guards] == [("value", "2", "1"), ("stride", "8", "9")]
    assert [(one.against, *((guard.kind, guard.old, guard.new) for guard in one.guards)) for one in later] == [
        ("0/1", ("stride", "9", "10")),
        ("0/2", ("stride", "10", "11")),
    ]
    layout = next(one for one in found[0].findings() if one.change is not None and "stride" in one.change.what)
    assert layout.place.line == line_of(
        test_a_stride_that_hides_behind_a_number_is_the_cause, "fast(text[:, -4:], turns)"
    )
    assert "contiguous()" in layout.advice


def test_other_sizes_have_other_strides_and_only_the_size_is_told(tmp_path: Path) -> None:
    fast = torch.compile(lambda x, k: x * k, backend="eager", dynamic=False)
    with observing(tmp_path / "run.log") as found:
        fast(torch.zeros(2, 4), 2.0)
        fast(torch.zeros(2, 5), 3.0)
    (again,) = found[0].of(Recompile)
    assert {guard.kind for guard in again.guards} == {"shape", "value"}


def test_the_stride_of_rows_of_a_table_follows_from_its_width_beside_another_size(tmp_path: Path) -> None:
    """Two lengths that somebody asked for: columns of a longer table lie further apart."""
    fast = torch.compile(lambda tide, gauge: tide.sum() + gauge, backend="eager", dynamic=False)
    with observing(tmp_path / "run.log") as found:
        for days in (24, 48):
            table = torch.zeros(3, days)
            fast(torch.zeros(days), table[:, :8])
    (again,) = found[0].of(Recompile)
    assert [(guard.kind, guard.subject) for guard in again.guards] == [("shape", "tide")]
    assert not found[0].findings()


def test_a_turned_tensor_is_a_cause_beside_another_size(tmp_path: Path) -> None:
    fast = torch.compile(lambda kelp, shell: kelp.sum() + shell, backend="eager", dynamic=False)
    with observing(tmp_path / "run.log") as found:
        fast(torch.zeros(24), torch.zeros(8, 8))
        fast(torch.zeros(48), torch.zeros(8, 8).t())
        fast(torch.zeros(96), torch.zeros(8, 16)[:, :8])
    for again in found[0].of(Recompile):
        assert [(guard.kind, guard.subject) for guard in again.guards] == [("shape", "kelp"), ("stride", "shell")]


def test_a_number_that_changes_with_a_size_is_a_cause_by_itself(tmp_path: Path) -> None:
    fast = torch.compile(lambda ink, shade: ink * shade, backend="eager", dynamic=False)
    with observing(tmp_path / "run.log") as found:
        for size in (2, 3, 4):
            fast(torch.rand(size), size + 0.5)
    (finding,) = found[0].findings()
    told = f"{finding.cause} {finding.advice}"
    assert "shape of ink changed from f32[2] to f32[3]" in told or "Python value of shade" in told
    assert "changed with it" in finding.cause
    assert "As for " in finding.advice


def test_a_size_that_only_the_code_makes_a_constant_is_told_with_the_line_that_does(tmp_path: Path) -> None:
    def arched(span: Any) -> Any:
        if span.size(0) == 12:
            return span * 4
        return span * span.size(0)

    fast = torch.compile(arched, backend="eager", dynamic=True)
    with observing(tmp_path / "run.log") as found:
        for width in (12, 22, 32):
            fast(torch.rand(width))
    (finding,) = found[0].findings()
    made = f"{Path(__file__).name}:{line_of(arched, 'if span')} (if span.size(0) == 12:)"
    assert f"and {made} makes a constant of it" in finding.cause
    assert finding.advice.startswith(f"{made} needs the size as a number")
    assert line_of(arched, "if span") in [place.line for place in finding.also]


def test_a_librarys_constant_is_told_where_the_program_runs_the_library(tmp_path: Path) -> None:
    vine = torch.nn.Linear(3, 1)
    frost = torch.nn.Dropout(0.1)

    def season(sun: Any) -> Any:
        grown = vine(sun)
        return frost(grown)

    fast = torch.compile(season, backend="eager")
    with observing(tmp_path / "run.log") as found:
        for rate in (0.1, 0.2, 0.3, 0.4):
            frost.p = rate
            fast(torch.rand(2, 3))
    (finding,) = found[0].findings("recompile")
    assert finding.place.line == line_of(season, "frost(grown)")
