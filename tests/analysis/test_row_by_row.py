"""A Jacobian of PyTorch's that is computed row by row, of a function that calls what is compiled."""

from __future__ import annotations

import pytest
import torch

from tests.analysis.compiling import Compiling
from tests.story import MS
from xlaprof.events import Look


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("partials = torch.autograd.functional.jacobian(path, x)", True),
        ("partials = jacobian(path, x, vectorize=True)", False),
        ("y = path(x)", False),
    ],
)
def test_its_time_is_told_with_the_option_that_takes_one_backward_pass(code: str, told: bool) -> None:
    """Looks find PyTorch's operations there, and what is compiled below it as well."""
    compiling = Compiling()
    story = compiling.story
    compiling.call = story.line(56, "state = step(state)", func="path", outer=(67, 78), loops=(55, 0, 70))
    compiling.compile("0/0", 500, backend=story.text("inductor"))
    line = story.line(67, code, func="main", outer=(78,), loops=(0, 70))
    for _ in range(10):
        story.emit(Look(story.now, 700 * MS, line, "torch"))
        story.spend(700)
        story.emit(Look(story.now, 100 * MS, compiling.call, "torch"))
        story.spend(100)
    story.finish()
    found = compiling.findings("idle_gap")
    assert [(one.place.line, round(one.cost_s, 1)) for one in found] == [(67, 7.0)] * told
    for one in found:
        assert one.advice.startswith("Have all rows computed at once: jacobian(..., vectorize=True)")


def test_all_rows_take_one_backward_pass_with_it() -> None:
    passes = []

    def path(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() * 2
        y.register_hook(lambda gradient: passes.append(1))
        return torch.cat((y, y.cos()))

    x = torch.linspace(0, 1, 5)
    by_row = torch.autograd.functional.jacobian(path, x)
    assert len(passes) == 10
    passes.clear()
    at_once = torch.autograd.functional.jacobian(path, x, vectorize=True)
    assert len(passes) == 1
    torch.testing.assert_close(at_once, by_row)
