"""How many steps there will be, where the program says so."""

from pathlib import Path

import pytest
from story import Story

import xlaprof
from xlaprof.events import Step


def test_a_program_says_in_its_first_step_how_many_there_will_be(tmp_path: Path) -> None:
    with xlaprof.record(tmp_path / "run.log"):
        for step in range(3):
            with xlaprof.StepTrace("train", step_num=step, total=1_000):
                pass
    (steps,) = xlaprof.report(tmp_path / "run.log").steps
    assert (steps.count, steps.total) == (3, 1_000)


@pytest.mark.parametrize("total", [True, -3, 0, "many", 1e6, 1 << 60, None])
def test_a_total_that_cannot_be_is_none(total: object) -> None:
    story = Story()
    story.put(Step(name=story.text("train"), num=0, t=0, dur=5, meta={"total": total}))
    assert story.report().steps[0].total == 0
