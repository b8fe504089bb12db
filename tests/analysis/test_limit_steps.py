"""What a step took before a recompile limit was hit, and takes since: measured, and said only where that is known."""

from __future__ import annotations

import pytest

from xlaprof.analysis.model import FunctionStat
from xlaprof.events import DynamoLimit

from .compiling import Compiling, shape


class Limited(Compiling):
    """A function that hits a limit in one of the steps of a training."""

    def steps(self, count: int, ms: float) -> None:
        for _ in range(count):
            with self.story.step():
                self.story.spend(ms)

    def compiles(self, number: int, ms: float, compiling_ms: float = 200) -> None:
        """A step that compiles a version, and takes ``ms`` beside."""
        with self.story.step():
            if number:
                self.recompile(f"0/{number}", shape(number, number + 1), ms=compiling_ms)
            else:
                self.compile("0/0", compiling_ms)
            self.story.spend(ms)

    def hits(self, number: int, ms: float) -> None:
        with self.story.step():
            self.recompile(f"0/{number}", shape(number, number + 1), ms=5, compiled=False, fail="Unsupported")
            where = {"func": self.func, "stack": self.call, "code": self.code}
            limit = DynamoLimit(self.story.now, f"0/{number}", value=number, guard=shape(number, number + 1), **where)
            self.story.emit(limit)
            self.story.spend(ms)

    @property
    def function(self) -> FunctionStat:
        (function,) = self.story.run().report().torch_compile.functions
        return function

    @property
    def cause(self) -> str:
        return self.findings("recompile")[0].cause


@pytest.fixture
def told() -> Limited:
    return Limited()


def test_steady_steps_before_and_since(told: Limited) -> None:
    for number in range(3):
        told.compiles(number, 90)  # the first run of what was compiled takes longer
        told.steps(5, 12)
    told.hits(3, 500)
    told.steps(40, 31)
    assert told.function.limit_steps_s == pytest.approx((0.012, 0.031))
    assert "a step took 12 ms before and takes 31 ms since" in told.cause


def test_where_each_step_before_compiled_what_is_left_of_it_counts(told: Limited) -> None:
    for number in range(5):
        told.compiles(number, 14, compiling_ms=300 + number)
    told.hits(5, 30)
    told.steps(10, 31)
    assert told.function.limit_steps_s == pytest.approx((0.014, 0.031))
    assert "beside compiling, a step took 14 ms before and takes 31 ms since" in told.cause


def test_steps_that_are_no_slower_are_no_consequence(told: Limited) -> None:
    told.compiles(0, 30)
    told.steps(5, 30)
    told.hits(1, 30)
    told.steps(10, 20)
    assert told.function.limit_steps_s == pytest.approx((0.030, 0.020))
    assert "a step took" not in told.cause


@pytest.mark.parametrize(("before", "since"), [(1, 10), (10, 2)])
def test_too_few_steps_say_nothing(told: Limited, before: int, since: int) -> None:
    told.compiles(0, 12)
    told.steps(before - 1, 12)
    told.hits(1, 31)
    told.steps(since, 31)
    assert told.function.limit_steps_s == ()
    assert "a step took" not in told.cause


def test_a_step_since_that_compiles_something_else_does_not_count(told: Limited) -> None:
    told.compiles(0, 12)
    told.steps(5, 12)
    told.hits(1, 31)
    for number in range(4):
        with told.story.step():
            told.compile(f"7/{number}", 400, func=told.story.text("another"))
            told.story.spend(90)
    told.steps(3, 33)
    known = {one.name: one.limit_steps_s for one in told.story.run().report().torch_compile.functions}
    assert known["forward"] == pytest.approx((0.012, 0.033))
    assert known["another"] == ()


def test_what_is_compiled_between_steps_is_none_of_theirs(told: Limited) -> None:
    told.compile("0/0", 500)
    told.steps(5, 12)
    told.hits(1, 31)
    for number in range(4):
        told.compile(f"7/{number}", 400, func=told.story.text("another"))
        told.steps(1, 33)
    known = {one.name: one.limit_steps_s for one in told.story.run().report().torch_compile.functions}
    assert known["forward"] == pytest.approx((0.012, 0.033))


def test_the_steps_of_two_recordings_are_in_no_order(told: Limited) -> None:
    other = Limited()
    for one in (told, other):
        one.compiles(0, 12)
        one.steps(5, 12)
        one.hits(1, 31)
        one.steps(5, 31)
    run = told.story.run()
    run.merge(other.story.run())
    (function,) = run.report().torch_compile.functions
    assert function.limit_steps_s == ()


def test_without_steps_nothing_is_said(told: Limited) -> None:
    told.compile("0/0")
    told.hits(1, 10)
    told.story.spend(500)
    assert told.function.limit_steps_s == ()
