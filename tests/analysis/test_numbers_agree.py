"""The numbers of one finding agree: what it takes, what a fix gives back, how often it comes, what a step pays."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from story import Story, clean

from analysis.test_batches import ordered, streams, trainings
from analysis.test_findings import ragged, reading, shape
from analysis.test_run import training
from xlaprof.analysis.model import Finding, Report
from xlaprof.analysis.run import Run
from xlaprof.analysis.timeline.rhythm import Rhythm
from xlaprof.events import AnyEvent, Change


def check(report: Report) -> None:
    steps = sum(stat.count for stat in report.steps)
    for one in report.findings:
        gain = max(one.gain_s, one.gain_last_s or 0.0)
        assert gain <= one.cost_s or not one.cost_s or "more than it costs, because" in one.cause
        for total, each in ((one.cost_s, one.cost_per_step_s), (one.gain_s, one.gain_per_step_s)):
            assert 0 <= each * max(1, steps) <= total * (1 + 1e-9)
        if one.cost_per_step_s:
            assert 2 * one.count >= steps
        if one.rhythm == "every step" and one.kind in ("transfer", "fallback"):
            assert one.count >= 0.8 * steps - 2


def selecting(each: int = 2, until: int = 12) -> Story:
    """Twelve steps in whose model a loop selects ``each`` times by a mask; the first needs a graph for itself."""
    story = Story()
    barrier = story.line(40, "xr.sync()", "main", loops=(30,))
    rows = story.line(12, "rows = (choice == i).nonzero()", "forward", outer=(35,), loops=(11, 30))
    for step in range(12):
        story.trace(2)
        for _ in range(each * (step < until)):
            story.compile("rows", 400, rows, trigger="read")
            story.execute("rows", 3, rows, "read")
            story.read(rows, "aten::nonzero")
        story.barrier(barrier, 10)
        story.spend(6)
    return story


def on_the_cpu() -> Story:
    """A fallback in every step, the first of which compiles a graph for its input for 600 ms."""
    story = Story()
    barrier, eig = story.line(20, "xr.sync()"), story.line(15, "r = torch.linalg.eigvals(w)")
    for _ in range(20):
        with story.step():
            story.trace(3)
            start = story.now
            story.compile("input", 600, eig, trigger="read")
            story.execute("input", 1, eig, "read")
            story.read(eig, "aten::linalg_eig", copy=1)
            story.spend(5)
            story.replay_fallback(eig, "aten::linalg_eig", start)
            story.barrier(barrier, 10)
    return story


def two_branches() -> Story:
    """From step 15 of 40 on another loss is computed."""
    story = Story()
    barrier, loss = story.line(20, "xr.sync()"), story.line(9, "loss = smooth(x)", func="loss")
    for step in range(40):
        with story.step():
            story.trace(2)
            change = Change("operation", "aten::add", "aten::sum", "x", stack=loss, added=20) if step == 15 else None
            story.barrier(barrier, 8, "smooth" if step >= 15 else "sharp", change=change)
            story.spend(7)
    return story


STORIES = [ragged(), reading(), reading(every=5), selecting(), on_the_cpu(), two_branches(), training(), clean()]


@pytest.mark.parametrize("story", STORIES, ids=range(len(STORIES)))
def test_in_every_story(story: Story) -> None:
    check(story.report())


@given(trainings())
def test_in_any_training(events: list[AnyEvent]) -> None:
    check(Run().feed_all(events).report())


@given(streams.map(ordered))
def test_in_any_stream(events: list[AnyEvent]) -> None:
    check(Run().feed_all(events).report())


def only(story: Story, kind: str) -> Finding:
    (found,) = story.findings(kind)
    return found


def test_a_wait_that_contains_compiling_is_told_apart() -> None:
    fallback = only(on_the_cpu(), "fallback")
    assert fallback.cost_s > 0.6
    waited = re.search(r"(\d+) ms in which the device waited for the host, besides 600 ms compiling", fallback.cause)
    assert waited is not None
    assert int(waited[1]) == pytest.approx(1000 * fallback.cost_s - 600, abs=1)
    selection = only(selecting(), "fallback")
    waited = re.search(r"24 times, (\d+) ms waited .* a graph of its own|24 times, (\d+) ms waited", selection.cause)
    assert waited is not None
    assert int(waited[1] or waited[2]) < 400
    assert "400 ms go into compiling 1 graph of its own" in selection.cause


def test_what_was_compiled_once_costs_nothing_per_step() -> None:
    fallback, recompile = only(on_the_cpu(), "fallback"), only(ragged(), "recompile")
    assert fallback.cost_per_step_s == pytest.approx((fallback.cost_s - 0.6) / 20)
    assert (recompile.cost_s, recompile.cost_per_step_s, recompile.gain_per_step_s) == (pytest.approx(0.5), 0, 0)


def test_what_is_compiled_in_most_steps_costs_that_per_step() -> None:
    story = Story()
    barrier = story.line(40, "xr.sync()")
    for n in range(10):
        with story.step():
            story.barrier(barrier, 2, f"{n} rows", 100, change=shape("f32[9,7]", f"f32[{n},7]") if n else None)
    finding = only(story, "recompile")
    assert finding.cost_per_step_s == pytest.approx(finding.cost_s / 10)


def test_all_reads_of_a_loop_in_the_step_count() -> None:
    finding = only(selecting(), "fallback")
    assert (finding.count, finding.rhythm) == (24, "2 times a step")


def test_reads_that_end_halfway_are_not_said_to_come_in_every_step() -> None:
    finding = only(selecting(until=7), "fallback")
    assert (finding.count, finding.rhythm) == (14, "2 times in 7 of 12 steps")


def test_another_path_from_halfway_on_is_not_taken_in_every_step() -> None:
    finding = only(two_branches(), "recompile")
    assert "every step" not in finding.cause
    assert finding.cost_per_step_s == 0


def test_two_operators_of_a_line_in_the_same_steps_make_no_more_steps() -> None:
    both = Rhythm.of(range(0, 40, 10))
    both.join(Rhythm.of(range(0, 40, 10)))
    assert (both.steps, both.text(40)) == (4, "2 times after every 10 steps")
    apart = Rhythm()
    apart.join(Rhythm.of(range(20)))
    apart.join(Rhythm.of(range(20, 40)))
    assert (apart.steps, apart.text(40)) == (40, "every step")


def test_a_gain_as_exact_as_predictions_are_is_the_cost() -> None:
    story = Story()
    barrier, cat = story.line(20, "xr.sync()"), story.line(12, "x = cat(x, y)")
    for n in range(10):
        with story.step():
            story.trace(4)  # recording another graph takes a little, too
            change = shape(f"f32[{n},8]", f"f32[{n + 1},8]", cat) if n else None
            story.barrier(barrier, 2, f"graph {n}", 100, change=change)
    finding = only(story, "recompile")
    assert finding.gain_s == finding.cost_s
    assert "A fix gives back" not in finding.cause


def test_what_a_gain_has_beyond_the_cost_is_said() -> None:
    story = Story()
    barrier, cat = story.line(20, "xr.sync()"), story.line(12, "x = cat(x, y)")
    for n in range(10):
        with story.step():
            story.trace(60)  # another graph each time: recording it is new, too
            change = shape(f"f32[{n},8]", f"f32[{n + 1},8]", cat) if n else None
            story.barrier(barrier, 2, f"graph {n}", 100, change=change)
    finding = only(story, "recompile")
    assert finding.gain_s > finding.cost_s
    assert re.search(r"A fix gives back .*: \d+ ms more than it costs, because recording these graphs", finding.cause)
