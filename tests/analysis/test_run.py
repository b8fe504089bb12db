"""The fold: steps, splits, scopes and counters; asked at any time, added up, started late, fed anything."""

import dataclasses
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from story import MS, Story, clean

from xlaprof.analysis.model import Report
from xlaprof.analysis.run import Run
from xlaprof.events import (
    Change,
    Compiling,
    Counters,
    Device,
    Dropped,
    Evicted,
    Execute,
    Header,
    Scope,
    StepDigest,
    Text,
    Thread,
    kinds,
)


def training(steps: int = 12, story: Story | None = None) -> Story:
    """A bit of everything: a warm-up compile, a recompile, reads, a scope, garbage collection, an evaluation."""
    story = story or Story()
    barrier, item = story.line(20, "xr.sync()"), story.line(22, "loss.item()")
    load = story.line(11, 'with Trace("load"):')
    for n in range(steps):
        with story.step():
            with story.scope("load", load):
                story.spend(6)
                with story.scope("decode"):
                    story.spend(3)
            story.trace(4)
            change = Change("shape", "f32[8]", "f32[5]", "input of aten::mm", stack=item)
            story.barrier(barrier, 10, "odd" if n == 7 else "step", change=change if n == 7 else None)
            story.read(item)
            if n % 3 == 0:
                story.gc(1)
        story.spend(1)
    return story


def test_steps_have_median_p95_and_a_first_of_their_own() -> None:
    story = Story()
    barrier = story.line(20)
    for n in range(21):
        with story.step():
            story.barrier(barrier, 5, compile=1000, dispatch=0)
            story.spend(10 if n < 20 else 90)
    (stat,) = story.report().steps
    assert (stat.name, stat.count, stat.last_num, stat.inferred) == ("train", 21, 20, False)
    assert stat.first_s == pytest.approx(1.010)
    assert stat.median_s == pytest.approx(0.010)
    assert stat.p95_s == pytest.approx(0.014, abs=0.001)
    assert (stat.min_s, stat.max_s) == pytest.approx((0.010, 0.090))
    assert len(stat.recent_s) == 21


def test_the_time_of_a_step_is_split_between_the_innermost_causes() -> None:
    story = training()
    split = story.report().steps[0].split
    assert split.total_s == pytest.approx(sum(story.report().steps[0].recent_s[1:]))
    assert split.compile_s == pytest.approx(0.5)
    assert split.scopes_s == pytest.approx(11 * 0.009)
    assert split.tracing_s == pytest.approx(11 * 0.004)
    assert split.transfer_wait_s == pytest.approx(11 * 0.01001)
    assert split.execute_s == pytest.approx(11 * 0.0002)
    assert split.gc_s == pytest.approx(0.003)
    assert split.other_s == pytest.approx(0, abs=1e-9)
    assert split.device_busy_s == pytest.approx(0.110)


def test_tracing_can_only_use_time_that_is_not_something_else() -> None:
    story = Story()
    for _ in range(2):
        with story.step():
            with story.scope("forward"):
                story.trace(8)
            story.trace(2)
            story.barrier(story.line(20), 1, compile=0, dispatch=0)
            story.spend(3)
    split = story.report().steps[0].split
    assert split.scopes_s == pytest.approx(0.008)
    assert split.tracing_s == pytest.approx(0.005)  # of the 10 ms that were told, as much as was left
    assert split.other_s == 0


def test_scopes_have_their_own_time_and_that_of_scopes_inside() -> None:
    stats = {scope.name: scope for scope in training().report().scopes}
    assert stats["load"].count == 12
    assert stats["load"].total_s == pytest.approx(12 * 0.009)
    assert stats["load"].self_s == pytest.approx(12 * 0.006)
    assert stats["decode"].self_s == pytest.approx(12 * 0.003)
    assert stats["load"].median_s == pytest.approx(0.009)


def test_a_scope_that_raised_is_counted() -> None:
    story = Story()
    story.emit(Scope(name=story.text("save"), t=0, dur=MS, error="OSError"))
    (scope,) = story.report().scopes
    assert scope.errors == 1


def test_without_steps_they_are_inferred_from_the_barrier_reached_most_often() -> None:
    story = Story()
    setup, first, second = story.line(5), story.line(20), story.line(30)
    story.spend(100)
    story.barrier(setup, 1, "setup", compile=0)
    for n in range(10):
        story.trace(4)
        story.barrier(first, 5, "a", compile=300, dispatch=0)
        story.spend(2)
        story.barrier(second, 5, "b", compile=0, dispatch=0)
        story.spend(4 if n else 0)
    report = story.report()
    (stat,) = report.steps
    assert (stat.inferred, stat.count) == (True, 10)
    assert stat.first_s == pytest.approx(0.304)
    assert stat.median_s == pytest.approx(0.010)
    assert report.clean


def test_where_graphs_train_the_turns_of_the_training_loop_are_the_steps() -> None:
    story = Story()
    train, sample = story.line(20, "xr.sync()", "main", loops=(12,)), story.line(7, "xr.sync()", "draw", outer=(22,))
    story.barrier(train, 1, "zeros", compile=0)  # a loader's, before the first batch
    for n in range(12):
        story.trace(4)
        story.barrier(train, 5, "step", compile=300, dispatch=0, trains=True)
        for _ in range(20 * (n % 4 == 3)):
            story.trace(1)
            story.barrier(sample, 2, "sample", compile=0, dispatch=0)
    (stat,) = story.report().steps
    assert (stat.count, stat.last_num, stat.inferred) == (12, 11, True)
    assert stat.median_s == pytest.approx(0.004)


def test_a_turn_with_several_updates_inside_is_one_step() -> None:
    story = Story()
    critic = story.line(31, "xr.sync()", "critic_step", outer=(50,), loops=(0, 49))
    generator = story.line(39, "xr.sync()", "generator_step", outer=(51,), loops=(0, 48))
    for _ in range(9):
        for _ in range(5):
            story.trace(2)
            story.barrier(critic, 1, "critic", compile=100, dispatch=0, trains=True)
        story.trace(3)
        story.barrier(generator, 1, "generator", compile=200, dispatch=0, trains=True, ops=150)
    (stat,) = story.report().steps
    assert stat.count == 9
    assert (stat.first_s, stat.median_s) == (pytest.approx(0.313), pytest.approx(0.013))


def test_the_steps_of_a_round_are_counted_not_the_rounds() -> None:
    """What ends a round trains a little, and less than its steps."""
    story = Story()
    update = story.line(31, "xm.optimizer_step(sgd, barrier=True)", "fit", outer=(50,), loops=(28, 49))
    score = story.line(52, "xr.sync()", "main", loops=(49,))
    for _ in range(6):
        for _ in range(12):
            story.trace(2)
            story.barrier(update, 1, "update", compile=100, dispatch=0, trains=True)
        story.barrier(score, 1, "score", compile=100, dispatch=0, trains=True, ops=20)
    (stat,) = story.report().steps
    assert stat.count == 72


def test_a_step_that_ends_at_the_barrier_of_the_log_is_one_like_the_others() -> None:
    """A loader's barrier ends each step; where there is something to log, or an epoch ends, one before it does."""
    story = Story()
    loader = story.line(20, "for x in loader:", "train", loops=(20, 12))
    log, end = story.line(25, "xr.sync()", "train", loops=(20, 12)), story.line(30, "xr.sync()", "train", loops=(12,))
    for n in range(54):
        story.trace(2)
        if n % 20 == 19 or n % 27 == 26:
            story.barrier(log if n % 20 == 19 else end, 1, "step", dispatch=0, trains=True)
            story.barrier(loader, 1, "what is left", dispatch=0, ops=2)
        else:
            story.barrier(loader, 1, "step", dispatch=0, trains=True)
    (stat,) = story.report().steps
    assert (stat.count, stat.last_num) == (54, 53)


def test_what_was_taken_for_steps_before_the_training_is_in_no_count_of_steps() -> None:
    story = Story()
    play, train = story.line(9, "xr.sync()", "main", loops=(7,)), story.line(20, "xr.sync()", "main", loops=(12,))
    asked = story.line(16, "if done.item():", "main", loops=(12,))
    for _ in range(15):
        story.trace(2)
        story.barrier(play, 1, "play")
    for n in range(20):
        story.trace(4)
        story.barrier(train, 5, "step", trains=True)
        for _ in range(9 * (n == 12)):
            story.read(asked)
    run = story.run()
    assert run.steps_ended == sum(tally.count for tally in run.steps.values()) == 20
    (tally,) = run.reads.values()
    assert tally.rhythm.text(20) == "9 times in one step"


def test_a_training_after_another_has_its_own_steps_even_if_its_loop_comes_later_in_the_function() -> None:
    story = Story()
    first, second = story.line(20, "xr.sync()", "main", loops=(12,)), story.line(30, "xr.sync()", "main", loops=(22,))
    for barrier, times in ((first, 20), (second, 200)):
        for _ in range(times):
            story.trace(2)
            story.barrier(barrier, 1, f"graph {barrier}", compile=100, dispatch=0, trains=True)
    (stat,) = story.report().steps
    assert stat.count > 180


def test_steps_that_were_named_are_not_inferred_too() -> None:
    report = clean().report()
    assert [stat.name for stat in report.steps] == ["train"]


def test_a_barrier_with_nothing_pending_ends_no_step() -> None:
    story = Story()
    for _ in range(5):
        story.barrier(story.line(20), ops=0)
    assert story.report().steps == ()


def test_counters_are_the_recordings_own_where_it_told_them() -> None:
    story = training()
    counted = story.report().counters
    assert (counted["CompileTime"], counted["ExecuteTime"], counted["TransferFromDeviceTime"]) == (2, 12, 12)
    story.emit(Counters(t=story.now, counts={"CompileTime": 2, "aten::nonzero": 7}, seconds={"CompileTime": 1.0}))
    report = story.report()
    assert report.counters["aten::nonzero"] == 7
    assert report.counters["ExecuteTime"] == 12
    assert report.seconds["CompileTime"] == 1.0


def test_digests_stand_for_whole_steps() -> None:
    story = Story()
    item, op = story.line(22, "loss.item()"), story.text("aten::_local_scalar_dense")
    train, load = story.text("train"), story.text("load")
    barrier = story.line(20)
    for _ in range(5):
        with story.step():
            story.trace(4)
            story.barrier(barrier, 10, compile=0, dispatch=0)
            story.read(item, copy=0)
    told = 100
    for n in range(told):
        digest = StepDigest(
            name=train,
            num=5 + n,
            t=story.now,
            dur=14 * MS,
            executions=1,
            busy=10 * MS,
            tracing=3 * MS,
            barriers=1,
            scopes={str(load): [1, 1 * MS, 1 * MS]},
            reads={f"{item}:{op}": [1, 10 * MS, 10 * MS]},
        )
        story.spend(14)
        story.emit(digest)
    report = story.report()
    (stat,) = report.steps
    assert stat.count == 105
    assert stat.median_s == pytest.approx(0.014)
    assert stat.split.total_s == pytest.approx(104 * 0.014)
    assert stat.split.transfer_wait_s == pytest.approx(104 * 0.010)
    assert stat.split.scopes_s == pytest.approx(100 * 0.001)
    assert stat.split.device_busy_s == pytest.approx(104 * 0.010)
    assert report.counters["ExecuteTime"] == 105
    assert report.counters["TransferFromDeviceTime"] == 105
    assert report.idle.busy_s == pytest.approx(1.050)
    assert report.idle.idle_s == pytest.approx(104 * 0.004)
    assert sum(part for _, part in report.idle.causes) == pytest.approx(report.idle.idle_s)
    (transfer,) = [finding for finding in report.findings if finding.kind == "transfer"]
    assert transfer.count == 105
    assert transfer.cost_s == pytest.approx(105 * 0.004, rel=0.3)
    assert report.scopes[0].count == 100


def test_a_report_in_the_middle_changes_nothing() -> None:
    story = training(30)
    story.finish()
    asked, left = Run(), Run()
    for number, event in enumerate(story.events):
        asked.feed(event)
        left.feed(event)
        if number % 7 == 0:
            asked.report()
    assert asked.report("run.log") == left.report("run.log")


def test_a_long_run_is_settled_as_it_goes_and_loses_nothing() -> None:
    short, long = training(12), training(3000)
    one, many = short.report(), long.report()
    assert len(long.events) > 18_000
    run = long.run()
    assert len(run.window.host.segments) < 17_000
    assert many.steps[0].count == 3000
    assert many.steps[0].split.scopes_s == pytest.approx(2999 * 0.009)
    assert many.steps[0].split.other_s == pytest.approx(0, abs=1e-9)
    assert many.idle.busy_s == pytest.approx(3000 * 0.010)
    assert {finding.id for finding in one.findings} == {finding.id for finding in many.findings}
    named = dict(many.idle.causes)
    assert set(named) == set(dict(one.idle.causes))


def test_since_step_leaves_out_what_came_before() -> None:
    story = training(20)
    story.emit(Counters(t=story.now, counts={"CompileTime": 2}))
    late = story.report(since_step=10)
    (stat,) = late.steps
    assert (stat.count, stat.last_num) == (10, 19)
    assert late.counters["ExecuteTime"] == 10
    assert "recompile" not in {finding.kind for finding in late.findings}
    assert "recompile" in {finding.kind for finding in story.report().findings}
    assert late.run.wall_s == pytest.approx(10 * 0.0252 + 0.003, rel=0.2)


def test_since_step_takes_what_lies_in_the_step_even_if_numbers_jump() -> None:
    story = Story()
    story._steps["train"] = 99
    barrier = story.line(20)
    for _ in range(3):
        with story.step():
            story.barrier(barrier, 5, compile=100, dispatch=0)
            story.spend(6)
    report = story.report(since_step=50)
    assert report.steps[0].count == 3
    assert report.counters["CompileTime"] == 1


def test_since_a_step_that_never_comes_is_known() -> None:
    run = training(5).run(since_step=50)
    assert run.waiting
    assert run.report().steps == ()


def test_two_ranks_add_up() -> None:
    one, two = training(12), training(20, Story(rank=1, file="other.py"))
    merged = (one.run() + two.run()).report()
    alone = one.report(), two.report()
    assert merged.steps[0].count == 32
    assert merged.counters["ExecuteTime"] == sum(report.counters["ExecuteTime"] for report in alone)
    assert merged.idle.busy_s == pytest.approx(sum(report.idle.busy_s for report in alone))
    assert merged.idle.idle_s == pytest.approx(sum(report.idle.idle_s for report in alone))
    assert sum(part for _, part in merged.idle.causes) == pytest.approx(merged.idle.idle_s)
    assert merged.scopes[0].total_s == pytest.approx(sum(report.scopes[0].total_s for report in alone))
    files = {finding.place.file for finding in merged.findings if finding.kind == "recompile"}
    assert files == {"train.py", "other.py"}


def test_fallbacks_of_two_ranks_add_up() -> None:
    story = Story()
    eig = story.line(15, "r = torch.linalg.eigvals(w)")
    for _ in range(3):
        with story.step():
            start = story.now
            story.spend(2)
            story.replay_fallback(eig, "aten::linalg_eig", start)
    run = story.run()
    assert [one.report().counters["aten::linalg_eig"] for one in (run, run + run, Run().merge(run))] == [3, 6, 3]


def test_adding_up_the_same_place_of_two_ranks_is_one_finding() -> None:
    one, two = training(12), training(12, Story(rank=1))
    merged = (one.run() + two.run()).report()
    (recompile,) = [finding for finding in merged.findings if finding.kind == "recompile"]
    assert recompile.count == 2
    assert recompile.id in {finding.id for finding in one.report().findings}


def test_merging_leaves_the_other_as_it_was() -> None:
    one, two = training(12).run(), training(20).run()
    before = two.report()
    one.merge(two)
    one.merge(two)
    assert two.report() == before
    assert one.report().steps[0].count == 52


def test_a_second_header_is_another_recording_in_the_same_log() -> None:
    one, two = training(12), training(20, Story(rank=1, start=100_000))
    report = Run().feed_all([*one.events, *two.events]).report()
    assert report.steps[0].count == 32
    assert report.run.events == len(one.events) + len(two.events)


def test_the_header_says_what_ran() -> None:
    story = training(3)
    story.emit(Device(t=story.now, platform="cuda", kind="NVIDIA H200", count=2))
    story.emit(Thread(tid=1, name="MainThread"))
    story.emit(Dropped(t=story.now, count=5, why="disk"))
    story.emit(Evicted(t=story.now, program=1, graph="g", limit=1))
    running = story.report().run
    assert not running.finished
    story.finish(error="KeyboardInterrupt")
    run = story.report().run
    assert (run.finished, run.error) == (True, "KeyboardInterrupt")
    assert (run.platform, run.device_kind, run.device_count) == ("cuda", "NVIDIA H200", 2)
    assert run.dropped == {"disk": 5}
    assert run.argv == ("train.py", "--fast")
    assert run.started_unix_s == 1_700_000_000
    assert run.events == len(story.events)
    assert story.run().report("x.log", notes=["torn"]).run.notes == ("torn",)


def test_what_it_is_doing_now() -> None:
    story = Story()
    assert story.report().activity.state == "starting"
    barrier = story.line(20, "xr.sync()")
    with story.step():
        story.emit(Compiling(t=story.now, ops=100, stack=barrier))
        activity = story.report().activity
        assert (activity.state, activity.detail) == ("compiling", "train.py:20  xr.sync() · graph 1")
        story.emit(Compiling(t=story.now + 4_000, ops=100, stack=barrier, phase="XLA", spent=4_000))
        assert story.report().activity.detail == "train.py:20  xr.sync() · graph 1 (XLA)"
        story.barrier(barrier, 5)
    assert (story.report().activity.state, story.report().activity.step) == ("running", 0)  # it failed, and has no end
    step = story.text("train_step")
    story.emit(Compiling(t=story.now + 1_000, ops=0, trigger="jit", phase="lowering", spent=1_000, func=step))
    assert story.report().activity.detail == "train_step (lowering)"
    story.finish()
    assert story.report().activity.state == "finished"


def test_places_are_resolved_and_unknown_ids_are_no_error() -> None:
    story = training(3)
    run = story.run()
    assert run.resolve(story.line(22, "loss.item()")).code == "loss.item()"
    assert run.resolve(0).line == 0
    assert run.resolve(999).line == 0


def test_a_log_without_header_or_names_is_analysed_as_far_as_it_goes() -> None:
    events = [event for event in training().events if not isinstance(event, Header | Text)]
    report = Run().feed_all(events).report()
    assert report.steps[0].count == 12
    assert report.steps[0].name.startswith("#")


def test_what_is_no_event_is_ignored() -> None:
    @dataclasses.dataclass
    class Later:
        t: int = 0

    run = Run()
    run.feed(Later())  # type: ignore[arg-type]
    assert run.report().steps == ()


@given(st.randoms(use_true_random=False), st.floats(0, 0.5))
def test_events_in_a_wild_order_or_missing_are_no_error(shuffler: random.Random, lost: float) -> None:
    events = [event for event in training(6).finish() if shuffler.random() >= lost]
    shuffler.shuffle(events)
    report = Run().feed_all(events).report()
    assert isinstance(report, Report)
    assert report.idle.idle_s >= 0


def of_type(kind: Any) -> st.SearchStrategy[Any] | None:
    """Values that a field of an event can have, up to the bounds of its type; None where it is something else."""
    bounds = getattr(kind, "__metadata__", (msgspec.Meta(),))[0]
    plain = getattr(kind, "__origin__", kind)
    if plain is int:
        return st.integers(bounds.ge, bounds.le)
    return {str: st.text(max_size=5), bool: st.booleans()}.get(plain)


@given(st.data())
def test_any_event_that_can_be_read_can_be_analysed(data: st.DataObject) -> None:
    """Fields of every event filled with whatever fits their type."""
    run = Run()
    for kind in data.draw(st.lists(st.sampled_from(list(kinds().values())), max_size=15)):
        fields = {}
        for field in msgspec.structs.fields(kind):
            values = of_type(field.type)
            if values is not None:
                fields[field.name] = data.draw(values)
            elif field.name in ("reads", "fallbacks", "scopes") and kind is StepDigest:
                triples = st.lists(st.integers(0, 99), min_size=3, max_size=3)
                fields[field.name] = data.draw(
                    st.dictionaries(st.text("0123456789:x", max_size=4), triples, max_size=2)
                )
            elif field.required:
                fields[field.name] = [] if field.name == "frames" else {}
        if kind is Execute:
            fields["end"] = max(fields["start"], fields["end"])
        run.feed(kind(**fields))
    run.report()
