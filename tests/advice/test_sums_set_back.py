"""What is recorded before a loop, and again by a line of the loop: a barrier before the loop alone spares nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import xlaprof.runtime as xr
from tests.advice.recompiled_programs import DEVICE
from tests.advice.taken import Case, Program, findings, observe, take
from xlaprof.events import Compile

SAVED = "directly behind the line in it that records the same anew"


def walk(*, before: bool = False, behind: bool = False, restarts: bool = True) -> Program:
    """A particle that starts anew from where all start, after each fifth turn; with barriers at these two places."""

    def program() -> None:
        field = torch.ones(6, 6).to(DEVICE)
        xr.sync()

        def wander() -> None:
            particle = torch.full((4, 6), 0.5, device=DEVICE)
            if before:
                xr.sync()
            for turn in range(1, 21):
                particle = (particle @ field).tanh() - (particle * 0.5).sigmoid().mean()
                xr.sync()
                if restarts and turn % 5 == 0:
                    assert particle.isfinite().all().item()
                    particle = torch.full((4, 6), 0.5, device=DEVICE)
                    if behind:
                        xr.sync()

        wander()

    return program


def walks() -> None:
    """Three such particles, none of which starts anew."""
    for _ in range(3):
        walk(restarts=False)()


def test_a_barrier_is_advised_behind_the_line_of_the_loop_too_where_that_records_it_anew(tmp_path: Path) -> None:
    case = Case(
        "what the loop sets back",
        "recompile",
        walk(),
        " directly before the loop at ",
        walk(before=True, behind=True),
        (),
        also=(SAVED, "3 more turns have that graph: one barrier alone spares nothing"),
        strict=True,
    )
    taken = take(case, tmp_path)
    assert "so do 3 more turns, as a line of the loop records it anew" in taken.found.cause


@pytest.mark.parametrize(("before", "behind", "spared"), [(True, False, 0), (False, True, 0), (True, True, 1)])
def test_of_the_two_barriers_each_alone_spares_nothing(before: bool, behind: bool, spared: int, tmp_path: Path) -> None:
    def large(program: Program, name: str) -> int:
        return sum(one.ops >= 6 for one in observe(program, tmp_path / name, strict=True).of(Compile))

    assert large(walk(before=before, behind=behind), "after.log") == large(walk(), "before.log") - spared


def test_a_loop_that_records_it_no_more_needs_the_one_barrier_before_it(tmp_path: Path) -> None:
    """Entered three times it has three first turns, and what precedes it each time."""
    events = observe(walks, tmp_path / "run.log", strict=True).events
    (found,) = (one for one in findings(events) if one.kind == "recompile")
    assert " directly before the loop at " in found.advice
    assert SAVED not in found.advice
