"""Steps that nobody named are the turns of one loop, whatever calls its function."""

from __future__ import annotations

import pytest
from story import Story


def relaxed(*, each: int = 8, inside: bool = False) -> Story:
    """Two plates are relaxed by one function, which shows the residual after each sweep; ``inside``: both in each turn
    of a loop around them."""
    story = Story()
    loops = (30, 70) if inside else (30, 0)
    calls = (80, 84)
    barriers = [story.line(34, "torch_xla.sync()", "relax", outer=(call,), loops=loops) for call in calls]
    reads = [story.line(35, "print(residual.tolist())", "relax", outer=(call,), loops=loops) for call in calls]
    for _ in range(1 + 2 * inside):
        for barrier, read in zip(barriers, reads, strict=True):
            for n in range(each):
                story.trace(1)
                story.barrier(barrier, 5, f"sweep {n}", compile=50, dispatch=0)
                story.read(read, op="aten::_to_copy")
    return story


@pytest.mark.parametrize("inside", [False, True])
def test_a_loop_that_two_lines_call_has_the_turns_of_both_calls_as_steps(inside: bool) -> None:
    turns = 48 if inside else 16
    (stat,) = relaxed(inside=inside).report().steps
    assert (stat.count, stat.inferred) == (turns, True)


def test_what_is_read_in_each_turn_of_both_calls_is_read_once_a_step() -> None:
    (finding,) = relaxed().findings("transfer")
    assert finding.count == 16
    assert "reads a tensor from the device in every step" in finding.cause
    assert "times a step" not in finding.cause


def test_two_calls_in_a_turn_are_no_two_steps() -> None:
    """The barrier is in a function without a loop of its own: the turn that calls it twice is the step."""
    story = Story()
    first, second = (story.line(12, "torch_xla.sync()", "half_step", outer=(call,), loops=(0, 50)) for call in (51, 52))
    for _ in range(9):
        for barrier in (first, second):
            story.trace(1)
            story.barrier(barrier, 5, "half", compile=50, dispatch=0)
    (stat,) = story.report().steps
    assert stat.count == 9
