"""The numbers of one finding agree: what it takes, what a fix gives back, how often it comes, what a step pays."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from rich.console import Console, RenderableType
from story import Story, clean

from analysis.test_batches import ordered, streams, trainings
from analysis.test_findings import ragged, reading, shape
from analysis.test_run import training
from xlaprof.analysis.model import Finding, Report
from xlaprof.analysis.occurrences import Occurrences
from xlaprof.analysis.run import Run
from xlaprof.analysis.timeline.rhythm import Rhythm
from xlaprof.events import AnyEvent, Change
from xlaprof.pages import explain, terminal
from xlaprof.pages.page import show_page
from xlaprof.pages.source import source
from xlaprof.reports import fold

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
LENGTH = r"((?:\d+m )?[\d.]+ (?:s|ms|us|ns))"


def seconds(text: str) -> float:
    minutes, _, rest = text.rpartition("m ") if re.match(r"\d+m ", text) else ("0", "", text)
    number, _, unit = rest.partition(" ")
    return 60 * int(minutes) + float(number) * UNITS[unit]


def check(report: Report) -> None:
    steps = sum(stat.count for stat in report.steps)
    for one in report.findings:
        gain = max(one.gain_s, one.gain_last_s or 0.0)
        assert gain <= one.cost_s or not one.cost_s or "more than it costs, because" in one.cause
        if one.gain_last_s is not None:
            assert abs(one.gain_last_s - one.gain_s) > 0.1 * gain  # or else one number is told
        if back := re.search(rf"A fix gives back (?:up to )?{LENGTH}", one.cause):
            assert seconds(back[1]) == pytest.approx(gain, rel=0.06)
        for total, each in ((one.cost_s, one.cost_per_step_s), (one.gain_s, one.gain_per_step_s)):
            assert 0 <= each * max(1, steps) <= total * (1 + 1e-9)
        if one.cost_per_step_s:
            assert 2 * one.count >= steps
        _check_rhythm(one, steps)
        _check_wait(one)
    _check_compiling(report)
    for account in report.accounts:
        parts = account.explained_s + account.normal_s + account.unexplained_s
        assert parts == pytest.approx(account.total_s, rel=1e-6, abs=1e-6)
        assert account.explained_s <= sum(one.cost_s for one in report.findings) * 1.1 + 1e-3


def _check_rhythm(one: Finding, steps: int) -> None:
    """Words of rhythm are true of the number beside them."""
    if one.rhythm == "every step" and one.kind not in ("growth", "idle_gap"):
        assert one.count >= 0.8 * steps - 2
    if together := re.fullmatch(r"([\d,]+) times (in one step|after the last step)", one.rhythm):
        assert int(together[1].replace(",", "")) == one.count
    if one.kind in ("transfer", "fallback") and (
        turns := re.fullmatch(r"(\d+) times after every (\d+) steps", one.rhythm)
    ):
        assert one.count <= int(turns[1]) * 1.5 * (steps / int(turns[2]) + 1)


def _check_wait(one: Finding) -> None:
    """What was waited, without what the device worked meanwhile, and with what was compiled, is the cost."""
    said = re.search(rf"times, {LENGTH} waited \([^;)]*(?:; the device worked for {LENGTH} of it)?\)", one.cause)
    if said is None:
        return
    own = re.search(rf"{LENGTH} (?:to compile|go into compiling)|go into compiling", one.cause)
    waited, worked = seconds(said[1]), seconds(said[2]) if said[2] else 0.0
    compiled = seconds(own[1]) if own and own[1] else 0.0
    assert one.cost_s == pytest.approx(waited - worked + compiled, rel=0.15, abs=0.002)


def _check_compiling(report: Report) -> None:
    done = report.torch_compile
    assert sum(charge.seconds for charge in done.charges) == pytest.approx(done.total_s, rel=1e-6, abs=1e-6)
    for charge in done.charges:
        for whole, part in re.findall(rf"Of the {LENGTH} in all {LENGTH} went", charge.why):
            assert seconds(part) <= seconds(whole)
    for one in report.findings:
        for times, length in re.findall(rf"compiled again (\d+) times, {LENGTH} in all", one.cause):
            assert int(times) <= one.count
            assert seconds(length) <= one.cost_s * 1.05 + 0.01


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


def waiting_while_the_device_works() -> Story:
    """Every step reads the sum of the step before, while the device has 30 ms to do and the host records for 10 ms."""
    story = Story()
    barrier, item = story.line(20, "xr.sync()"), story.line(22, "total = sums[step - 1].item()")
    for _ in range(30):
        with story.step():
            story.trace(10)
            story.barrier(barrier, 30)
            story.read(item)
    return story


def drawing(draws: int = 2) -> Story:
    """After every twenty steps of a training a loop without a barrier asks five times whether it is done."""
    story = Story()
    barrier = story.line(20, "xr.sync()", "main", loops=(12,))
    asked = story.line(44, "while not done.all():", "draw", outer=(24,), loops=(44, 12))
    for _ in range(draws):
        for _ in range(20):
            story.trace(4)
            story.barrier(barrier, 8, "step", compile=300, dispatch=0, trains=True)
        for _ in range(5):
            story.trace(1)
            story.compile("done", 0, asked, trigger="read")
            story.execute("done", 60, asked, "read")
            story.read(asked)
            story.spend(60)
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
STORIES += [waiting_while_the_device_works(), drawing()]
SAMPLES = sorted((Path(__file__).parents[2] / "sample_traces").glob("*.log"))


@pytest.mark.parametrize("log", SAMPLES, ids=lambda log: log.stem)
def test_in_recordings_of_real_programs(log: Path) -> None:
    run, notes = fold(str(log))
    check(run.report(str(log), notes))


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


def test_a_wait_in_which_the_device_worked_is_told_apart_from_the_cost() -> None:
    finding = only(waiting_while_the_device_works(), "transfer")
    assert finding.cost_s == pytest.approx(0.01 * 29, rel=0.1)
    assert re.search(r"30 times, 900 ms waited \(30 ms each; the device worked for 60\d ms of it\)", finding.cause)


def test_all_turns_of_a_loop_without_a_barrier_count_those_after_the_last_step_too() -> None:
    finding = only(drawing(), "transfer")
    assert (finding.count, finding.rhythm) == (10, "5 times after every 20 steps")
    assert "10 times, " in finding.cause


def test_what_happens_when_all_steps_are_over_is_not_in_one_of_them() -> None:
    after = Rhythm()
    after.at(48, 98)
    assert (after.text(48), after.text(60)) == ("98 times after the last step", "98 times in one step")


@pytest.mark.parametrize("story", STORIES, ids=range(len(STORIES)))
def test_the_report_and_the_explanation_say_one_gain(story: Story) -> None:
    report = story.report()
    shown = printed(partial(terminal.render, report))
    for one in report.findings:
        if not one.gain_s or one.gain_last_s is not None:
            continue
        sources, happened = (source(one.place), ()), Occurrences(0, (), (), 1.0)
        told = re.search(rf"Gain if fixed: {LENGTH}", printed(partial(explain.render, one, report, happened, sources)))
        assert told is not None
        assert f"gain {told[1]}" in shown


def printed(render: Callable[[int], RenderableType]) -> str:
    file = io.StringIO()
    show_page(render, Console(file=file, width=100, color_system=None, highlight=False))
    return file.getvalue()


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


def test_reads_before_it_is_known_what_a_step_is_are_in_no_more_steps_than_there_are() -> None:
    """Each update plays six turns first, which end in barriers of their own, and reads twice in each of them."""
    story = Story()
    turn, update = story.line(20, "xr.sync()", loops=(12,)), story.line(40, "xr.sync()", loops=(30,))
    score = story.line(14, "if score.item() > 0:", loops=(12,))
    for _ in range(9):
        for _ in range(6):
            story.trace(2)
            story.barrier(turn, 4, "turn")
            story.read(score)
            story.read(score)
        story.trace(2)
        story.barrier(update, 8, "update", trains=True)
    (finding,) = story.findings("transfer")
    assert (finding.count, finding.rhythm) == (108, "12 times a step")
    assert "12 times a step" in finding.cause


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
