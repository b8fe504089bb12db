"""Two runs side by side: what is gone, new, changed, faster, slower; what is uncertain, or cannot be compared."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from story import Story, clean

from analysis.test_findings import ragged, reading
from xlaprof.analysis.gates.compare import Comparison, compare, obstacles
from xlaprof.events import Device, Dropped, Header


def steps(length: float, count: int = 60, name: str = "train", seed: int = 0, spread: float = 0.02) -> Story:
    """Steps of about ``length`` ms."""
    story = Story()
    barrier = story.line(20, "xr.sync()")
    dice = random.Random(seed)
    for _ in range(count):
        with story.step(name):
            story.trace(length * 0.1)
            story.barrier(barrier, device=length * 0.9, compile=50)
            story.spend(max(0.0, length * (0.85 + dice.gauss(0, spread))))
    story.finish()
    return story


def between(before: Story, after: Story, tolerance: float = 0.03) -> Comparison:
    return compare(before.run(), after.run(), (before.report(), after.report()), tolerance)


# -- step time


def test_faster_and_slower_steps_are_reported_with_their_bounds() -> None:
    (change,) = between(steps(20), steps(15, seed=1)).steps
    assert change.verdict == "faster"
    assert change.low is not None
    assert change.high is not None
    assert change.low < -0.25 < change.high < 0
    comparison = between(steps(15), steps(20, seed=1))
    assert comparison.steps[0].verdict == "slower"
    assert comparison.worse == ("train steps 33% slower",)
    assert comparison.better == ()


def test_noise_is_no_difference() -> None:
    comparison = between(steps(20, seed=1), steps(20, seed=2))
    assert comparison.steps[0].verdict == "same"
    assert (comparison.worse, comparison.better) == ((), ())


def test_a_small_difference_is_none_however_sure() -> None:
    """Two processes of the same program differ by a little without any change."""
    before, after = steps(20, 500, spread=0.001), steps(20.4, 500, seed=1, spread=0.001)
    assert between(before, after).steps[0].verdict == "same"
    assert between(before, after, tolerance=0.0).steps[0].verdict == "slower"


def test_few_steps_say_nothing() -> None:
    change = between(steps(20, 4), steps(90, 4)).steps[0]
    assert (change.verdict, change.by) == ("unknown", None)


def test_only_names_that_both_have_are_compared() -> None:
    before, after = steps(20), steps(20)
    with after.step("eval"):
        after.spend(5)
    assert [change.name for change in between(before, after).steps] == ["train"]


def test_inferred_steps_are_compared_with_inferred_ones() -> None:
    def unnamed(length: float) -> Story:
        story = Story()
        for _ in range(20):
            story.spend(length)
            story.barrier(story.line(20, "xr.sync()"), 1, compile=5)
        return story

    (change,) = between(unnamed(10), unnamed(30)).steps
    assert change.verdict == "slower"
    assert obstacles(unnamed(10).report(), steps(10).report())[0].startswith(
        "they have no steps in common: those between"
    )


# -- findings


def test_findings_gone_new_and_as_they_were() -> None:
    comparison = between(ragged(), clean())
    assert [finding.kind for finding in comparison.gone] == ["recompile"]
    assert (comparison.new, comparison.changed, comparison.kept) == ((), (), ())
    assert "1 finding gone" in comparison.better

    comparison = between(clean(), ragged())
    assert [finding.kind for finding in comparison.new] == ["recompile"]
    assert "1 new finding" in comparison.worse

    comparison = between(ragged(), ragged())
    assert [pair.after.kind for pair in comparison.kept] == ["recompile"]
    assert (comparison.gone, comparison.new, comparison.changed) == ((), (), ())
    assert comparison.worse == ()


def falling(per_step: int, count: int = 10, ms: float = 3) -> Story:
    story = Story()
    barrier, eig = story.line(20, "xr.sync()"), story.line(18, "torch.linalg.eigvals(w)")
    for _ in range(count):
        with story.step():
            for _ in range(per_step):
                story.fallback(eig, "aten::linalg_eig", ms)
            story.barrier(barrier, 5, compile=1)
            story.spend(10)
    return story


def test_a_longer_run_of_the_same_has_not_changed() -> None:
    comparison = between(falling(1), falling(1, count=40))
    assert [pair.after.kind for pair in comparison.kept] == ["fallback"]


def test_more_of_it_in_each_step_has() -> None:
    (pair,) = between(falling(1), falling(3)).changed
    assert (pair.before.count, pair.after.count) == (10, 30)


def test_a_higher_cost_per_step_has() -> None:
    (pair,) = between(falling(1, ms=3), falling(1, ms=9)).changed
    assert pair.after.cost_s > 2 * pair.before.cost_s


def test_a_finding_of_higher_severity_is_worse() -> None:
    before, after = falling(1, ms=0.05), falling(1, ms=9)
    (one,), (two,) = before.findings("fallback"), after.findings("fallback")
    assert (one.severity, two.severity) != (two.severity, one.severity)
    assert "1 finding of higher severity than before" in between(before, after).worse


def test_the_same_defect_of_a_renamed_program_is_not_gone_and_new() -> None:
    def named(file: str) -> Story:
        story = Story(file=file)
        header = story.events[0]
        assert isinstance(header, Header)
        story.events[0] = replace(header, argv=[file])
        barrier, eig = story.line(20, "xr.sync()"), story.line(18, "torch.linalg.eigvals(w)")
        for _ in range(10):
            with story.step():
                story.fallback(eig, "aten::linalg_eig", 3)
                story.barrier(barrier, 5, compile=1)
        return story

    comparison = between(named("train.py"), named("train_fixed.py"))
    assert [pair.after.kind for pair in comparison.kept] == ["fallback"]
    assert "the programs have different names: train.py, train_fixed.py" in comparison.notes


# -- figures


def test_figures() -> None:
    figures = {quantity.name: quantity for quantity in between(reading(), clean()).quantities}
    assert figures["transfers per step"].before > 0.5
    assert figures["transfers per step"].after == 0
    assert figures["compile time"].before == pytest.approx(reading().run().compile_bill.total / 1e9)
    assert figures["device idle"].before == pytest.approx(reading().report().idle.idle_ratio)
    figures = {quantity.name: quantity for quantity in between(falling(2), clean()).quantities}
    assert (figures["operations on the CPU"].before, figures["operations on the CPU"].after) == (20, 0)


# -- what cannot be compared


def changed(story: Story, **header: object) -> Story:
    first = story.events[0]
    assert isinstance(first, Header)
    story.events[0] = replace(first, **header)
    return story


def on(platform: str, kind: str, count: int = 1) -> Story:
    story = clean()
    story.emit(Device(t=story.now, platform=platform, kind=kind, count=count))
    return story


def lacking(story: Story) -> Story:
    story.emit(Dropped(t=story.now, count=7, why="disk"))
    return story


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (clean, lambda: changed(clean(), world=4), "one ran as 1, the other as 4 processes"),
        (
            lambda: changed(clean(), world=2),
            lambda: changed(clean(), world=2, rank=1),
            "one is rank 0, the other rank 1",
        ),
        (lambda: on("cpu", "cpu"), lambda: on("cuda", "NVIDIA H200"), "one ran on cpu, the other on cuda"),
        (
            lambda: on("cuda", "NVIDIA H100"),
            lambda: on("cuda", "NVIDIA H200"),
            "one ran on NVIDIA H100, the other on NVIDIA H200",
        ),
        (lambda: on("tpu", "v4", 4), lambda: on("tpu", "v4", 8), "one had 4 devices, the other 8"),
        (clean, lambda: steps(20, name="generate"), "no steps in common: 'train' in one, 'generate' in the other"),
        (clean, Story, "'run.log' has no steps"),
        (clean, lambda: lacking(clean()), "run.log lacks 7 events that it dropped"),
        (clean, lambda: changed(clean(), argv=["serve.py"]), "different programs, train.py and serve.py"),
    ],
)
def test_obstacles(before: Callable[[], Story], after: Callable[[], Story], why: str) -> None:
    assert any(why in obstacle for obstacle in obstacles(before().report(), after().report()))


def test_versions_of_a_program_and_other_arguments_are_none_but_are_noted() -> None:
    for argv in (["train_v2.py"], ["/elsewhere/train.py", "--batch", "8"], ["train.py"]):
        other = changed(clean(), argv=argv)
        assert obstacles(clean().report(), other.report()) == []
        assert any("differen" in note for note in between(clean(), other).notes)


def test_what_makes_the_answer_less_certain_is_noted() -> None:
    other = changed(clean(), host="elsewhere", versions={"torch": "2.12.0"})
    other.finish(error="KeyboardInterrupt")
    notes = between(clean(), other).notes
    assert "recorded on different hosts: box, elsewhere" in notes
    assert "torch 2.13.0 before, 2.12.0 after" in notes
    assert "the recording before has no end: the program still runs, or was killed" in notes
    assert "the program after ended with KeyboardInterrupt" in notes
