"""What a fix would give back: planted schedules whose length with and without the defect is known, and laws."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from story import MS, Story, clean

from xlaprof.analysis.run import Run
from xlaprof.analysis.timeline import host, schedule
from xlaprof.analysis.whatif import replay
from xlaprof.analysis.whatif.replay import Cut, WhatIf, play
from xlaprof.events import Change, Device, StepDigest
from xlaprof.pages import terminal
from xlaprof.pages.json import to_json

ITEM, BARRIER, FORWARD = "loss.item()", "xr.sync()", "y = model(x)"


def settled(story: Story) -> Run:
    story.finish()
    return story.run().settled()


def gain_s(run: Run, cut: Cut) -> float:
    return WhatIf(run).gain_s(cut)


def gain_of_all_s(run: Run, cuts: list[Cut]) -> float:
    return WhatIf(run).gain_of_all_s(cuts)


def spans(run: Run) -> list[int]:
    return [play(part).span for part in run.window.schedule.parts()]


def training(steps: int = 10, *, host_ms: float, device_ms: float, read: bool) -> tuple[Run, Story]:
    """A step records for ``host_ms`` and runs for ``device_ms``; with ``read`` the host waits for its value."""
    story = Story()
    barrier, item = story.line(20, BARRIER), story.line(21, ITEM)
    for _ in range(steps):
        with story.step():
            story.trace(host_ms)
            story.barrier(barrier, device=device_ms, compile=0, dispatch=0)
            if read:
                story.read(item, copy=0)
    return settled(story), story


# -- planted


@pytest.mark.parametrize(("host_ms", "device_ms"), [(4, 10), (10, 4), (5, 5)])
def test_without_the_read_host_and_device_work_at_the_same_time(host_ms: int, device_ms: int) -> None:
    run, story = training(host_ms=host_ms, device_ms=device_ms, read=True)
    fixed, _ = training(host_ms=host_ms, device_ms=device_ms, read=False)
    item = story.line(21, ITEM)
    assert spans(run) == [10 * (host_ms + device_ms) * MS]
    (without,) = spans(fixed)
    assert gain_s(run, replay.reads([item])) == pytest.approx((spans(run)[0] - without) / 1e9, abs=1e-12)
    (step, *_) = WhatIf(run).steps(replay.reads([item]), story.text("train"))
    assert step.recorded == (host_ms + device_ms) * MS
    assert step.now == max(host_ms, device_ms) * MS


def test_a_read_of_what_is_there_long_since_gains_its_copy_and_no_more() -> None:
    story = Story()
    barrier, item = story.line(20, BARRIER), story.line(21, ITEM)
    for _ in range(10):
        story.trace(10)
        story.barrier(barrier, device=2, compile=0, dispatch=0)
        story.trace(5)
        story.read(item, copy=0.5)
    run = settled(story)
    assert gain_s(run, replay.reads([item])) == pytest.approx(10 * 0.0005, abs=1e-9)


def test_a_compile_that_the_device_did_not_wait_for_gains_nothing() -> None:
    story = Story()
    barrier, other = story.line(20, BARRIER), story.line(30, BARRIER)
    for step in range(4):
        story.barrier(barrier, device=400, graph="long", compile=100, dispatch=0)
        story.barrier(other, device=1, graph=f"short {step}", compile=50, dispatch=0)
    run = settled(story)
    again = [record for record in run.compiles if record.nth]
    assert len(again) == 3
    # all but the first 150 ms the device has work: it is the one that is waited for
    assert gain_s(run, replay.compiles(again)) == 0
    first = [record for record in run.compiles if record.stack == barrier]
    assert gain_s(run, replay.compiles(first)) == pytest.approx(0.100)


def test_a_compile_takes_the_recording_of_what_is_new_with_it() -> None:
    story = Story()
    barrier = story.line(20, BARRIER)
    changed = Change("shape", "f32[8]", "f32[4]", "input of aten::relu", stack=barrier)
    for step in range(20):
        ragged = step == 10
        story.trace(300 if ragged else 2)  # 100 operations: 20 us each where the path is known
        story.barrier(barrier, device=1, graph="ragged" if ragged else "step", compile=500, dispatch=0, change=changed)
        story.read(story.line(21, ITEM), copy=0)
    run = settled(story)
    again = [record for record in run.compiles if record.nth]
    assert gain_s(run, replay.compiles(again)) == pytest.approx(0.500 + 0.298)
    # Half the graph has the same first operations of their kind, and 50 of the others: they take 100 us each.
    assert gain_s(run, replay.compiles(again, kept=0.5)) == pytest.approx(0.250 + 0.005 - 0.001)


def test_recording_in_a_named_scope_is_recording_too() -> None:
    story = Story()
    barrier = story.line(20, BARRIER)
    for step in range(6):
        with story.scope("load"):
            story.spend(7)
        with story.scope("forward"):
            story.trace(3 if step else 50)
        story.barrier(barrier, device=1, graph="step", compile=100, dispatch=0)
        story.read(story.line(21, ITEM), copy=0)
    run = settled(story)
    gain = gain_s(run, replay.compiles(run.compiles))
    assert gain == pytest.approx(0.100 + 0.047)


def test_an_unrolled_loop_keeps_the_share_of_one_repetition() -> None:
    story = Story()
    picture = story.line(30, "image.cpu()")
    story.trace(1000)
    story.compile("unrolled", 4000, picture, trigger="read", ops=100_000)  # so many that none was recorded in vain
    story.execute("unrolled", 100, picture, "read")
    story.read(picture, copy=0)
    run = settled(story)
    assert gain_s(run, replay.compiles(run.compiles, kept=1 / 50)) == pytest.approx(4 * 49 / 50)


def test_a_fallback_goes_with_its_wait_and_what_it_did_on_the_host() -> None:
    story = Story()
    barrier, fall = story.line(20, BARRIER), story.line(15, "w = torch.linalg.eig(a)")
    for _ in range(10):
        story.trace(2)
        story.barrier(fall, device=3, compile=0, dispatch=0.5, trigger="read")
        story.fallback(fall, "aten::linalg_eig", 5)
        story.trace(2)
        story.barrier(barrier, device=3, compile=0, dispatch=0)
    run = settled(story)
    # 2 + 0.5 + 3 + 0.01 + 5 + 2 each, 0.5 more where the device is still at work, and 3 at the end;
    # without it the device is what is waited for: 2 + 20 * 3
    assert spans(run) == [round((10 * 12.51 + 9 * 0.5 + 3) * MS)]
    assert gain_s(run, replay.fallbacks([fall])) == pytest.approx(0.1326 - 0.062)


def test_a_pause_of_the_host_costs_what_the_device_noticed_of_it() -> None:
    def told(pause_ms: float) -> Run:
        story = Story()
        barrier = story.line(20, BARRIER)
        before, after = story.line(21, "draw(x)"), story.line(24, FORWARD)
        for _ in range(10):
            story.trace(2)
            story.barrier(barrier, device=10, compile=0, dispatch=0)
            story.python(pause_ms, before, after)
        story.wait(barrier)
        return settled(story)

    pause = replay.doing([(2, 3)])
    assert gain_s(told(5), pause) == 0
    assert gain_s(told(20), pause) == pytest.approx((10 * 22 - (2 + 10 * 10)) / 1e3)


def test_barriers_too_many_give_back_their_dispatch() -> None:
    story = Story()
    lines = [story.line(line, BARRIER) for line in (20, 21, 22)]
    for _ in range(10):
        for line in lines:
            story.trace(1)
            story.barrier(line, device=0.5, compile=0, dispatch=2)
    run = settled(story)
    assert gain_s(run, replay.barriers(lines[:2])) == pytest.approx(0.040)


def test_what_the_device_computed_for_a_read_alone_goes_with_it() -> None:
    story = Story()
    barrier, item = story.line(20, BARRIER), story.line(15, ITEM)
    for _ in range(10):
        story.trace(1)
        story.compile("forward", 0, item, trigger="read")
        story.execute("forward", 4, item, "read")
        story.read(item, copy=0)
        story.trace(1)
        story.barrier(barrier, device=10, compile=0, dispatch=0)
    run = settled(story)
    # 1, wait for the 10 and the 4, 1; without the read 1 and 10 for each
    assert gain_s(run, replay.reads([item])) == pytest.approx((6 + 9 * 15 + 10 - (1 + 140)) / 1e3)
    assert gain_s(run, replay.reads([item], alone=[item])) == pytest.approx((6 + 9 * 15 + 10 - (2 + 100)) / 1e3)


def test_two_defects_that_hide_each_other_gain_more_together() -> None:
    story = Story()
    barrier = story.line(20, BARRIER)
    items = [story.line(21, ITEM), story.line(22, "acc.item()")]
    for _ in range(10):
        story.trace(10)
        story.barrier(barrier, device=10, compile=0, dispatch=0)
        for item in items:
            story.read(item, copy=0.01)
    run = settled(story)
    alone = [replay.reads([item]) for item in items]
    assert [gain_s(run, cut) for cut in alone] == pytest.approx([0.0001, 0.0001], abs=1e-7)
    assert gain_of_all_s(run, alone) == pytest.approx(0.0902)


def test_of_a_compile_that_two_findings_shorten_what_neither_takes_remains() -> None:
    story = Story()
    story.barrier(story.line(20, BARRIER), device=1, compile=100, dispatch=0)
    run = settled(story)
    cuts = [replay.compiles(run.compiles, kept) for kept in (0.5, 0.6)]
    assert gain_of_all_s(run, cuts) == pytest.approx(0.090)


@pytest.mark.parametrize(("cores", "step_ms"), [(0, 10), (1, 14), (2, 12), (4, 11)])
def test_a_device_on_the_hosts_processors_is_slower_while_the_host_is_busy(cores: int, step_ms: float) -> None:
    story = Story()
    story.emit(Device(0, "cpu" if cores else "tpu", "", cores=cores))
    barrier, item = story.line(20, BARRIER), story.line(21, ITEM)
    for _ in range(10):
        with story.step():
            story.trace(4)
            story.barrier(barrier, device=10, compile=0, dispatch=0)
            story.read(item, copy=0)
    run = settled(story)
    # the first 4 ms and the last 10 the other has nothing to do
    assert gain_s(run, replay.reads([item])) == pytest.approx(0.140 - (0.004 + 9 * step_ms / 1e3 + 0.010))


def test_a_report_predicts_the_run_with_everything_fixed() -> None:
    story = Story()
    barrier, item, fall = story.line(20, BARRIER), story.line(21, "print(loss.item())"), story.line(15, "w = eig(a)")
    for _ in range(20):
        with story.step():
            story.trace(3)
            story.fallback(fall, "aten::linalg_eig", 5)
            story.trace(1)
            story.barrier(barrier, device=10, compile=0, dispatch=0)
            story.read(item, copy=0.01)
    story.finish()
    report = story.report()
    assert {finding.kind for finding in report.findings} == {"transfer", "fallback"}
    predicted = report.predicted
    assert predicted is not None
    # 3 + 5.01 + 1 + 10.01 now; then the device's 10, which is the longer of both
    assert predicted.step_s == pytest.approx(0.01902, abs=1e-4)
    assert predicted.fixed_step_s == pytest.approx(0.010, abs=1e-4)
    assert predicted.gain_s == pytest.approx(20 * 0.01902 - (0.004 + 20 * 0.010), abs=1e-3)
    assert predicted.wall_s + predicted.gain_s == pytest.approx(report.run.wall_s)
    for finding in report.findings:
        assert 0 < finding.gain_s < predicted.gain_s
    told = to_json(report)
    assert told["gain_s"] == predicted.gain_s
    assert told["predicted"]["fixed_step_s"] == predicted.fixed_step_s
    page = Console(width=100, record=True, file=io.StringIO())
    page.print(terminal.render(report, 100))
    text = " ".join(page.export_text().split())
    assert "With all of this fixed the run takes" in text
    assert "a step 10 ms instead of 19 ms" in text


def test_a_run_without_findings_promises_nothing() -> None:
    report = clean().report()
    assert report.predicted is None
    assert to_json(report)["gain_s"] == 0.0


# -- long recordings, and several


def test_a_long_recording_keeps_a_sample_and_predicts_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "_LIMIT", 30_000)
    steps = 15_000
    run, story = training(steps, host_ms=4, device_ms=10, read=True)
    part = run.window.schedule
    assert part.seen > len(part.batches)
    assert sum(batch.size for _, batch in part.batches) < 30_000
    gain = gain_s(run, replay.reads([story.line(21, ITEM)]))
    assert gain == pytest.approx(steps * 0.004, rel=0.01)


def test_what_digests_told_counts_as_what_was_told_in_full() -> None:
    story = Story()
    barrier, item = story.line(20, BARRIER), story.line(21, ITEM)
    read = f"{item}:{story.text('aten::_local_scalar_dense')}"
    for step in range(100):
        if step < 20:
            with story.step():
                story.trace(4)
                story.barrier(barrier, device=10, compile=0, dispatch=0)
                story.read(item, copy=0)
        else:
            start = story.now
            story.spend(14)
            told = {read: [1, 10 * MS, 10 * MS]}
            story.emit(
                StepDigest(
                    story.text("train"), step, start, 14 * MS, executions=1, busy=10 * MS, tracing=4 * MS, reads=told
                )
            )
    run = settled(story)
    assert gain_s(run, replay.reads([item])) == pytest.approx(100 * 0.004, rel=0.06)


def test_ranks_at_the_same_time_are_as_fast_as_the_slowest_and_recordings_after_each_other_add_up() -> None:
    def rank(number: int, start: int, read: bool) -> Run:
        story = Story(rank=number, start=start)
        story.line(99, "something else")  # so that ids differ
        for _ in range(number):
            story.line(98 - number, "more")
        barrier, item = story.line(20, BARRIER), story.line(21, ITEM)
        for _ in range(10):
            story.trace(5)
            story.barrier(barrier, device=5, compile=0, dispatch=0)
            if read:
                story.read(item, copy=0)
        story.finish()
        return story.run()

    def gain(*runs: Run) -> float:
        run = Run()
        for one in runs:
            run.merge(one)
        (item,) = {stack for stack, _ in run.reads}
        return gain_s(run.settled(), replay.reads([item]))

    one = gain(rank(0, 0, True))
    assert one == pytest.approx(0.045)
    assert gain(rank(0, 0, True), rank(1, 0, True)) == pytest.approx(one)
    assert gain(rank(0, 0, False), rank(1, 0, True)) == pytest.approx(one)
    assert gain(rank(0, 0, True), rank(1, 5000, True)) == pytest.approx(2 * one)


# -- laws


LINES = {"sync": 20, "other": 30, "item": 21, "acc": 22, "fall": 15}
ACTS = st.one_of(
    st.tuples(st.just("trace"), st.integers(0, 9)),
    st.tuples(st.just("spend"), st.integers(0, 9)),
    st.tuples(st.just("python"), st.integers(2, 9)),
    st.tuples(st.just("scope"), st.integers(1, 9)),
    st.tuples(st.just("gc"), st.integers(1, 5)),
    st.tuples(st.just("sync"), st.integers(0, 30)),
    st.tuples(st.just("other"), st.integers(0, 30)),
    st.tuples(st.just("new"), st.integers(1, 30)),
    st.tuples(st.just("item"), st.integers(0, 2)),
    st.tuples(st.just("acc"), st.integers(0, 2)),
    st.tuples(st.just("fall"), st.integers(1, 9)),
    st.tuples(st.just("wait"), st.just(0)),
)


def told(acts: list[list[tuple[str, int]]]) -> tuple[Run, dict[str, Cut]]:
    """A run of steps that do these things, and cuts of everything that may be a defect in it."""
    story = Story()
    lines = {name: story.line(number, name) for name, number in LINES.items()}
    for step in acts:
        with story.step():
            for number, (act, ms) in enumerate(step):
                if act in ("trace", "spend", "gc"):
                    getattr(story, act)(ms)
                elif act == "python":
                    story.python(ms, lines["item"], lines["sync"])
                elif act == "scope":
                    with story.scope("work"):
                        story.trace(ms)
                elif act in ("sync", "other"):
                    story.barrier(lines[act], device=ms, graph=act, compile=40)
                elif act == "new":
                    story.barrier(lines["sync"], device=ms, graph=f"{len(story.events)}-{number}", compile=25)
                elif act in ("item", "acc"):
                    story.read(lines[act], copy=ms)
                elif act == "wait":
                    story.wait(lines["sync"])
                else:
                    story.fallback(lines["fall"], "aten::eig", ms)
    run = settled(story)
    again = [record for record in run.compiles if record.nth]
    return run, {
        "item": replay.reads([lines["item"]]),
        "acc": replay.reads([lines["acc"]]),
        "fall": replay.fallbacks([lines["fall"]]),
        "other": replay.barriers([lines["other"]]),
        "python": replay.doing([(lines["item"], lines["sync"])]),
        "scope": replay.doing([host.SCOPE + story.text("work")]),
        "gc": replay.doing([host.GC]),
        "again": replay.compiles(again),
        "half": replay.compiles(run.compiles, 0.5),
    }


STORIES = st.lists(st.lists(ACTS, min_size=1, max_size=8), min_size=1, max_size=12).map(told)


@given(STORIES)
def test_run_again_with_nothing_cut_out_it_takes_what_it_took(made: tuple[Run, dict[str, Cut]]) -> None:
    run, _ = made
    for part in run.window.schedule.parts():
        device = max((one.end for _, batch in part.batches for one in batch.executions), default=0)
        for pace in (1, 0.5, 0):
            played = play(part, pace=pace)
            assert played.end == pytest.approx(max(part.end or 0, device), abs=10)
            assert all(step.now == pytest.approx(step.recorded, abs=10) for step in played.steps)
        assert play(part).end == max(part.end or 0, device)


@given(STORIES)
def test_a_gain_is_never_negative_nor_more_than_what_was_cut_out(made: tuple[Run, dict[str, Cut]]) -> None:
    run, cuts = made
    (part,) = run.window.schedule.parts() or [None]
    for cut in cuts.values():
        gain = gain_s(run, cut)
        assert 0 <= gain <= (run.last - (run.begin or 0)) / 1e9
        if part is not None:
            kept = replay._kept(cut)
            spent = 0.0
            for _, batch in part.batches:
                lanes = replay.lanes_of(batch)
                spent += sum(
                    ns * (1 - replay._remains(key, cut, kept, lanes.known)) for key, ns in lanes.spent().items()
                )
            assert gain <= spent / 1e9 + 1e-6


@given(STORIES, st.lists(st.sampled_from(["item", "acc", "fall", "other", "python", "scope", "gc", "again", "half"])))
def test_more_fixes_gain_no_less_in_whatever_order(made: tuple[Run, dict[str, Cut]], names: list[str]) -> None:
    run, cuts = made
    chosen = [cuts[name] for name in names]
    whole = gain_of_all_s(run, chosen)
    assert whole == gain_of_all_s(run, chosen[::-1])
    for cut in chosen:
        assert gain_s(run, cut) <= whole + 1e-12
    for shorter in range(len(chosen)):
        assert gain_of_all_s(run, chosen[:shorter]) <= whole + 1e-12


@given(STORIES)
def test_the_device_must_do_its_work_whatever_is_fixed(made: tuple[Run, dict[str, Cut]]) -> None:
    run, _ = made
    for part in run.window.schedule.parts():
        busy = sum(one.end - one.start for _, batch in part.batches for one in batch.executions)
        keys = {key for _, batch in part.batches for key in replay.lanes_of(batch).keys}
        everything = Cut(
            causes=frozenset(key.cause for key in keys),
            places=frozenset((key.cause, key.stack) for key in keys if isinstance(key.cause, int)),
            compiles=replay.compiles(run.compiles).compiles,
        )
        kept = {moment: share for moment, _, share in everything.compiles}
        left = 0.0
        for _, batch in part.batches:
            lanes = replay.lanes_of(batch)
            spent = lanes.spent()
            left += sum(ns * replay._remains(key, everything, kept, lanes.known) for key, ns in spent.items())
        assert busy <= play(part, everything).span <= busy + left + 1


def test_what_the_host_did_before_the_first_execution_is_not_told_by_gaps() -> None:
    story = Story()
    barrier = story.line(20, BARRIER)
    story.gc(100)
    for _ in range(10):
        story.trace(1)
        story.gc(5)
        story.barrier(barrier, device=1, compile=0, dispatch=0)
        story.wait(barrier)
    assert gain_s(settled(story), replay.doing([host.GC])) == pytest.approx(9 * 0.005)


TIME = st.integers(-(10**9), 10**9)


@given(st.lists(st.tuples(st.sampled_from(["read", "run", "compile", "barrier"]), TIME, TIME, TIME), max_size=12))
def test_hostile_times_are_survived(told: list[tuple[str, int, int, int]]) -> None:
    run = Run()
    part = run.window.schedule
    for kind, a, b, c in told:
        if kind == "read":
            part.waits.append((a, b, c))
        elif kind == "run":
            part.executions.append((a, b, c, 0, 0))
        elif kind == "compile":
            part.compiles.append((a, b, c))
        else:
            part.recordings.append((a, b, c, abs(a), 1))
        run.window.host.unpainted.append((a, b, 1 + abs(c) % 8, 1))
    assert gain_s(run.settled(), replay.reads([1])) >= 0
