"""A program that calls jitted functions in its loop, with no barrier: what is of the loop, and what is not."""

from __future__ import annotations

import msgspec
import pytest
from story import Story

from xlaprof.analysis.model import Finding
from xlaprof.events import ArgumentChange, JitCompile

from .test_gaps import Watched

NUMBER = "jax.Array: one number"


class Jitted(Watched):
    """A story whose ``train`` calls the jitted function ``step`` at line 40, in the loop at line 38."""

    def __init__(self) -> None:
        super().__init__()
        self.call = self.line(40, "loss = step(state, batch)", outer=(90,), loops=(38,))
        self.code = self.line(10, "def step(state, batch):", func="step")

    def made(self, *changes: ArgumentChange, ms: float = 400, versions: int = 0) -> None:
        """JAX makes a program of ``step``."""
        start = self.now
        self.spend(ms)
        name = self.text("step")
        made = JitCompile(start, self.now - start, name, self.call, self.code, versions=versions, changes=list(changes))
        self.emit(made)

    def found(self, kind: str) -> list[Finding]:
        self.finish()
        return self.findings(kind)


def test_what_happened_once_before_the_loop_is_not_joined_with_what_the_turns_do() -> None:
    """Both are called from ``main()``, at the same line: a function that calls what is jitted is where turns differ."""
    for each, found in ((2, 0), (30, 1)):
        story = Jitted()
        with story.step("step"):
            story.made()
            story.execute("step", 5, story.call)
        for row in (51, 52, 53):  # an archive is read
            story.seen(900, "python", story.line(row, "rows.append(line)", func="load", outer=(37, 90)))
        for _ in range(40):
            with story.step("step"):
                story.execute("step", 5, story.call)
                story.spend(1)
                story.seen(5 + each, "python", story.line(60, "votes.count(x)", func="vote", outer=(41, 90)))
        gaps = story.found("idle_gap")
        assert [one.place.line for one in gaps] == [60] * found
        for gap in gaps:
            assert gap.cost_s == pytest.approx(40 * 0.031, rel=0.05)


@pytest.mark.parametrize(("every", "kept"), [(20, 0), (1, 1)])
def test_a_mean_that_is_read_every_so_many_steps_is_for_the_log(every: int, kept: int) -> None:
    """Twenty numbers at once, each twentieth step, in the loop of the steps."""
    story = Jitted()
    fetch = story.line(44, "mean = np.mean(jax.device_get(losses))", outer=(90,), loops=(38,))
    for turn in range(1, 201):
        with story.step("step"):
            if turn == 1:
                story.made()
            story.execute("step", 5, story.call)
            story.spend(4)
            if turn % every == 0:
                for _ in range(every):
                    story.read(fetch, NUMBER)
                story.spend(2)  # the device has nothing to do
    found = story.found("transfer")
    assert [one.place.line for one in found] == [44] * kept
    for one in found:
        assert one.cause.startswith("jax.device_get() reads one number from the device in every step")


@pytest.mark.parametrize(
    ("at", "values", "found"),
    [
        ((2,), "30 60", 0),  # both horizons are warmed up
        ((2, 3), "30 60 90", 0),
        ((30, 60), "0 1 2", 1),  # an epoch's number: another in each epoch
        ((2,), "0.1 0.05", 1),  # a rate, which decides nothing
        ((2, 3, 4, 5), "1 2 3 4 5", 1),
    ],
)
def test_a_static_number_with_few_values_that_are_warmed_up_is_meant(
    at: tuple[int, ...], values: str, found: int
) -> None:
    story, numbers = Jitted(), values.split()
    for turn in range(100):
        with story.step("step"):
            if turn == 0:
                story.made()
            if turn in at:
                nth = at.index(turn)
                change = ArgumentChange("static", "horizon", numbers[nth], numbers[nth + 1])
                story.made(change, versions=nth + 1)
            story.execute("step", 5, story.call)
            story.spend(5)
    assert len(story.found("recompile")) == found


@pytest.mark.parametrize(
    ("seconds", "run", "loop", "found"),
    [(14, 60, 88, 1), (14, 60, 0, 0), (3, 60, 88, 0), (14, 300, 88, 0)],
)
def test_few_turns_of_a_loop_are_told_of_where_they_take_long_to_compile(
    seconds: int, run: int, loop: int, found: int
) -> None:
    """Without a loop a function is called several times; in a long run the first program takes what it may."""
    story = Story()
    turn = story.line(24, "h = relu(dense(x))", func="evolve", outer=(89,), loops=(0, loop))
    for nth, took in enumerate((seconds, 13)):
        start, name = story.now, story.text("train_step")
        story.spend(took * 1000)
        made = JitCompile(start, story.now - start, name, turn, versions=nth, ops=1_100, turns=14, loop=turn)
        story.emit(msgspec.structs.replace(made, loop_ops=990))
    story.spend(run * 1000)
    story.finish()
    unrolled = story.findings("unrolled_loop")
    assert [one.count for one in unrolled] == [1] * found
    for one in unrolled:
        assert one.cost_s == pytest.approx(14 * 0.9 * 13 / 14)
        assert "in the loop of train.py:88, this line is traced 14 times" in one.cause


def test_what_is_computed_of_a_weakly_typed_array_is_no_cause_of_its_own() -> None:
    """A scale is made of a number: the model is typed after its first update, the optimizer's mean of it after two."""
    story, weak = Jitted(), "f32[16], weakly typed (from a Python number)"
    for turn in range(40):
        with story.step("step"):
            if turn < 3:
                changes = [ArgumentChange("weak type", name, weak, "f32[16]") for name in ("model[10]", "optimizer[7]")]
                story.made(*changes[turn - 1 : turn] if turn else (), ms=400 + 40 * turn, versions=turn)
            story.execute("step", 5, story.call)
            story.spend(5)
    (finding,) = story.found("recompile")
    assert (finding.count, finding.cost_s) == (2, pytest.approx(0.92))
    assert finding.cause.startswith("model[10] went from"), "it comes first"
    assert "give a dtype where it is made of a number" in finding.advice


@pytest.mark.parametrize(("other", "found"), [("signals['heart'] f32[16]", 1), ("signals['speed'] f32[16]", 2)])
def test_entries_that_a_batch_lacks_are_one_cause_in_all_functions_that_it_is_given_to(other: str, found: int) -> None:
    story = Jitted()
    test = story.line(50, "tables = [confusion(s) for s in loader]", outer=(90,), loops=(50,))
    code, name = story.line(20, "def confusion(signals):", func="confusion"), story.text("confusion")
    lacks = {3: "signals['heart'] f32[16]", 5: "signals['breath'] f32[16]"}
    for turn in range(40):
        with story.step("step"):
            if turn in (0, 3, 5):
                change = [ArgumentChange("structure", "signals", "", lacks[turn])] if turn else []
                story.made(*change, versions=len(change))
            story.execute("step", 5, story.call)
            story.spend(5)
    for nth, changes in enumerate(([], [ArgumentChange("structure", "signals", other, "")])):
        start = story.now
        story.spend(300)
        story.emit(JitCompile(start, story.now - start, name, test, code, versions=nth, changes=changes))
    told = story.found("recompile")
    assert len(told) == found
    assert ("step, confusion were compiled again 3 times" in told[0].cause) is (found == 1)


def test_a_batch_that_is_shorter_and_longer_too_is_another_sort_and_no_last_one() -> None:
    for new, found in (("i32[280,48]", 0), ("i32[280,24]", 1)):
        story = Jitted()
        for turn in range(40):
            with story.step("step"):
                if turn in (0, 2):
                    change = [ArgumentChange("shape", "words", "i32[520,24]", new, 0)] if turn else []
                    story.made(*change, versions=len(change))
                story.execute("step", 5, story.call)
                story.spend(5)
        assert len(story.found("recompile")) == found


@pytest.mark.parametrize(("code", "found"), [("loss = step(state, batch)", 0), ("x = draw(rows)", 1)])
def test_the_host_at_a_jitted_call_takes_its_arguments_apart(code: str, found: int) -> None:
    """Which the next step needs, and no plain Python that could be moved out of the loop."""
    story = Jitted()
    seen = story.call if not found else story.line(39, code, outer=(90,), loops=(38,))
    for turn in range(40):
        with story.step("step"):
            if turn == 0:
                story.made()
            story.execute("step", 5, story.call)
            story.spend(6)
            story.seen(30, "python", seen)
    assert len(story.found("idle_gap")) == found
