"""``torch._dynamo.reset()`` forgets what was compiled: the same graph again is told, at the line that resets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import nn

import xlaprof
from tests.sources.observed import line_of, observe
from xlaprof.events import DynamoCompile, Recompile

# torch's own modules, which Dynamo imports while it compiles
pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


class Pendulum(nn.Module):
    """The angle's change, of a network of ``width``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.outer, self.drop = nn.Linear(2, width), nn.Linear(width, 1), nn.Dropout(0.1)

    def forward(self, state: Any) -> Any:
        return self.outer(self.drop(torch.tanh(self.inner(state))))


def trained(width: int, rows: int = 6) -> None:
    """On six rows, and evaluated on ``rows``."""
    net = torch.compile(Pendulum(width), backend="eager")
    for _ in range(2):
        net(torch.randn(6, 2)).sum().backward()
    net.eval()
    with torch.no_grad():
        net(torch.randn(rows, 2))


def seeds(widths: tuple[int, ...], reset: Callable[[], None]) -> None:
    for width in widths:
        trained(width)
        reset()


@pytest.mark.parametrize("reset", [torch._dynamo.reset, torch.compiler.reset], ids=["dynamo", "compiler"])
def test_the_same_graphs_after_a_reset_are_one_finding_at_its_line(tmp_path: Path, reset: Any) -> None:
    # torch.compiler calls what stands in torch._dynamo; a name that was bound before the recording is not watched
    named = (lambda: torch._dynamo.reset()) if reset is torch._dynamo.reset else (lambda: torch.compiler.reset())
    seen = observe(tmp_path, lambda: seeds((8, 8, 8), named))
    (finding,) = seen.findings("recompile")
    assert finding.place.line == line_of(
        test_the_same_graphs_after_a_reset_are_one_finding_at_its_line, "torch._dynamo.reset()) if"
    )
    again = [event for event in seen.of(Recompile) if event.guards[0].kind == "reset"]
    assert finding.count == len(again) == 4  # training and evaluation of the second and the third model
    durations = {(event.compile, event.t): event.dur for event in seen.of(DynamoCompile)}
    costs = list(durations.values())[2:]
    assert finding.cost_s == pytest.approx(sum(costs) / 1e9)
    assert "Pendulum.forward was compiled again 4 times" in finding.cause
    assert "Do without the reset" in finding.advice


def test_without_the_reset_nothing_is_compiled_again(tmp_path: Path) -> None:
    seen = observe(tmp_path, lambda: seeds((8, 8, 8), lambda: None))
    assert seen.counts.graphs == 2
    assert not any("reset" in one.why for one in seen.report.torch_compile.charges)
    assert not seen.findings("recompile")


def test_what_the_evaluation_differs_in_is_no_cause_beside_the_reset(tmp_path: Path) -> None:
    """Its rows are fewer, which took a graph of its own in the first model's time as well, whatever was forgotten."""

    def program() -> None:
        for _ in range(3):
            trained(8, rows=4)
            torch._dynamo.reset()

    seen = observe(tmp_path, program)
    (finding,) = seen.findings("recompile")
    assert any(guard.kind == "shape" for event in seen.of(Recompile) for guard in event.guards)
    assert finding.count == 4
    assert "a cause by itself" not in finding.cause
    assert finding.advice.startswith("Do without the reset")
    assert "As for" not in finding.advice


def test_other_graphs_after_a_reset_are_first_compilations(tmp_path: Path) -> None:
    seen = observe(tmp_path, lambda: seeds((4, 8, 16), torch.compiler.reset))
    assert seen.counts.compiles == 6
    assert not seen.findings("recompile")
    (first,) = (one for one in seen.report.torch_compile.charges if one.what == "first")
    at = f"{Path(__file__).name}:{line_of(seeds, 'reset()')}"
    assert f"came after torch._dynamo.reset() at {at}, for the same functions" in first.why
    assert "2 graphs of these (" in first.why, "of the second model and the third, their training"
    assert not [event for event in seen.of(Recompile) if event.guards[0].kind == "reset"]


def test_only_what_came_before_counts(tmp_path: Path) -> None:
    seen = observe(tmp_path, lambda: seeds((8, 16, 8), torch.compiler.reset))
    (finding,) = seen.findings("recompile")
    assert finding.count == 2


def test_a_guard_that_fails_after_a_reset_stays_the_cause_of_a_new_graph(tmp_path: Path) -> None:
    def program() -> None:
        clipped = torch.compile(lambda x, most: x.clamp(max=most), backend="eager", dynamic=False)
        for limits in ((1, 2), (1, 3)):
            for most in limits:
                clipped(torch.ones(5), most)
            torch.compiler.reset()

    seen = observe(tmp_path, program)
    assert [(guard[0], *guard[2:]) for guard in seen.changes] == [
        ("value", "1", "2"),
        ("reset", "kept", "forgotten"),
        ("value", "1", "3"),
    ]


def test_what_follows_a_break_is_forgotten_with_the_function(tmp_path: Path) -> None:
    def announced(x: Any) -> Any:
        x = x * 2
        print("half-way")
        return x + 1

    def program() -> None:
        fast = torch.compile(announced, backend="eager")
        for _ in range(2):
            fast(torch.ones(3))
            torch.compiler.reset()

    seen = observe(tmp_path, program)
    (finding,) = seen.findings("recompile")
    assert finding.count == 2
    assert "behind line" in finding.cause


def test_a_recording_watches_the_reset_and_then_lets_go(tmp_path: Path) -> None:
    before = torch._dynamo.reset
    with xlaprof.record(tmp_path / "run.log"):
        assert torch._dynamo.reset is not before
        assert torch._dynamo.reset.__doc__ == before.__doc__
    assert torch._dynamo.reset is before


def test_a_wrapper_that_somebody_put_over_it_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch._dynamo.reset
    with xlaprof.record(tmp_path / "run.log"):
        watched = torch._dynamo.reset
        monkeypatch.setattr(torch._dynamo, "reset", lambda: watched())
        theirs: Any = torch._dynamo.reset
    assert torch._dynamo.reset is theirs
    theirs()  # the recording is over
    monkeypatch.undo()
    assert torch._dynamo.reset is watched
    torch._dynamo.reset = before
