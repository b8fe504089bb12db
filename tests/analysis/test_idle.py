"""Idle time: found exactly, and blamed to the last nanosecond on what the host did."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from story import MS, Story

from xlaprof.analysis.run import Run
from xlaprof.analysis.timeline import host
from xlaprof.analysis.timeline.device import DeviceTimeline
from xlaprof.events import (
    Barrier,
    Compile,
    DataWait,
    Event,
    Execute,
    Fallback,
    Gc,
    Hole,
    Sample,
    Scope,
    Step,
    Text,
    TransferFromDevice,
    TransferToDevice,
)


def test_a_gap_is_split_between_what_the_host_did_in_it() -> None:
    story = Story()
    barrier = story.line(20, "xr.sync()")
    before, after = story.line(21, "loss = f(x)"), story.line(25, "x = g(x).to(device)")
    story.barrier(barrier, device=10, dispatch=0, compile=0)  # device busy 0..10
    with story.scope("work"):
        story.spend(12)  # 0..12: 2 ms of it idle
        story.gc(1)  # 12..13
        story.spend(1)  # ..14
    story.data(2)  # ..16
    story.python(3, before, after)  # ..19
    story.upload(1, after)  # ..20
    story.trace(4)  # ..24
    story.spend(1)  # ..25
    story.barrier(barrier, device=5, dispatch=0)  # 25..30
    story.finish()
    idle = story.report().idle
    assert idle.window_s == pytest.approx(0.030)
    assert idle.busy_s == pytest.approx(0.015)
    assert dict(idle.causes) == pytest.approx(
        {
            "scope work": 0.003,
            "garbage collection": 0.001,
            "data wait": 0.002,
            "python train.py:21-25": 0.003,
            "upload": 0.001,
            "tracing": 0.004,
            "other": 0.001,
        }
    )
    (gap,) = idle.gaps
    assert gap.dur_s == pytest.approx(0.015)
    assert sum(part for _, part in gap.blame) == pytest.approx(gap.dur_s)
    assert gap.start_s == pytest.approx(0.010)


def test_time_before_the_first_execution_and_after_the_last_is_not_idle() -> None:
    story = Story()
    story.spend(1000)
    story.barrier(story.line(1), device=10)
    story.spend(2000)
    story.finish()
    idle = story.report().idle
    assert idle.window_s == pytest.approx(0.010)
    assert idle.idle_s == 0
    assert idle.gaps == ()


def test_an_execution_of_no_length_leaves_the_gap_around_it_whole() -> None:
    device = DeviceTimeline()
    for start, end in [(0, 10), (15, 15), (20, 30)]:
        device.add(start, end)
    quiet, busy = device.settle(100)
    assert quiet == [(10, 20)]
    assert busy == [(0, 10), (20, 30)]
    assert (device.busy, device.idle) == (20, 10)


def test_the_wait_of_a_read_is_busy_time_of_the_device_and_only_its_tail_is_idle() -> None:
    story = Story()
    barrier, item = story.line(20), story.line(22, "loss.item()")
    story.barrier(barrier, device=10, dispatch=0, compile=0)
    story.read(item, copy=1)
    story.barrier(barrier, device=10, dispatch=0)
    story.finish()
    assert dict(story.report().idle.causes) == pytest.approx({"transfer wait": 0.001})
    (gap,) = story.report().idle.gaps
    assert gap.place.line == 22


def test_a_compile_on_another_thread_is_what_the_main_thread_waits_for() -> None:
    story = Story()
    barrier, backward = story.line(20), story.line(15, "loss.backward()")
    with story.step():
        story.barrier(barrier, device=10, compile=0, dispatch=0)
    with story.step():
        with story.scope("backward"):
            story.compile("mask", 50, backward, tid=2)
        story.barrier(barrier, device=10, dispatch=0)
    story.finish()
    report = story.report()
    assert dict(report.idle.causes) == pytest.approx({"compile": 0.040})
    assert report.steps[0].split.compile_s == pytest.approx(0.050)
    assert report.steps[0].split.scopes_s == 0


def test_what_a_loader_thread_does_meanwhile_is_not_blamed() -> None:
    story = Story()
    barrier = story.line(20)
    story.barrier(barrier, device=10, compile=0, dispatch=0)
    story.spend(20)
    story.emit(TransferToDevice(t=11 * MS, dur=8 * MS, bytes=1, tid=3))
    story.emit(Scope(name=story.text("collate"), t=11 * MS, dur=8 * MS, tid=3))
    story.barrier(barrier, device=10, dispatch=0)
    story.finish()
    report = story.report()
    assert dict(report.idle.causes) == pytest.approx({"other": 0.010})
    assert [scope.name for scope in report.scopes] == ["collate"]


def test_a_scope_around_the_whole_training_explains_nothing() -> None:
    story = Story()
    barrier = story.line(20)
    with story.scope("epoch"):
        for _ in range(3):
            with story.step():
                story.spend(20)
                story.barrier(barrier, device=10, compile=0, dispatch=0)
    story.finish()
    assert dict(story.report().idle.causes) == pytest.approx({"other": 0.020})


KINDS = (Scope, Compile, Fallback, Gc, DataWait, TransferToDevice, TransferFromDevice, Barrier)
CAUSE = {
    Scope: "scope work",
    Compile: "compile",
    Fallback: "fallback",
    Gc: "garbage collection",
    DataWait: "data wait",
    TransferToDevice: "upload",
    TransferFromDevice: "transfer wait",
    Barrier: "dispatch",
}


def told(kind: type, start: int, end: int) -> Event:
    dur = end - start
    if kind is Scope:
        return Scope(name=1, t=start, dur=dur)
    if kind is Compile:
        return Compile(t=start, dur=dur, program=1, graph="g", ops=1, inputs=1, outputs=1)
    if kind is Fallback:
        return Fallback(t=start, dur=dur, op=1)
    if kind is Gc:
        return Gc(t=start, dur=dur, generation=0)
    if kind is TransferToDevice:
        return TransferToDevice(t=start, dur=dur, bytes=1)
    if kind is TransferFromDevice:
        return TransferFromDevice(t=start, dur=dur, wait=0, bytes=1)
    return kind(t=start, dur=dur)


@st.composite
def nested(draw: st.DrawFn, start: int = 0, end: int = 200, depth: int = 0) -> list[tuple[type, int, int]]:
    """Host intervals of one thread, properly nested, each told after what it contains."""
    intervals = []
    cursor = start
    while cursor < end and draw(st.booleans()):
        begin = draw(st.integers(cursor, end - 1))
        stop = draw(st.integers(begin + 1, end))
        if depth < 3:
            intervals += draw(nested(begin, stop, depth + 1))
        kind = draw(st.sampled_from(KINDS))
        intervals.append((kind, begin, stop))
        cursor = stop
    return intervals


def executions(bounds: list[int]) -> list[tuple[int, int]]:
    points = sorted(bounds)
    return [(a, b) for a, b in zip(points[::2], points[1::2], strict=False) if b > a]


@given(nested(), st.lists(st.integers(0, 200), max_size=20), st.randoms(use_true_random=False))
def test_every_idle_nanosecond_is_blamed_on_the_innermost_interval(intervals, bounds, random) -> None:
    # Transfers inside a fallback count as the fallback's, whatever lies between: leave those out of the oracle.
    intervals = [one for one in intervals if one[0] is not Fallback]
    busy = executions(bounds)
    events: list[tuple[int, Event]] = [(end, told(kind, start, end)) for kind, start, end in intervals]
    position = 0
    merged: list[Event] = []
    for start, end in busy:
        while position < len(events) and random.random() < 0.7:
            merged.append(events[position][1])
            position += 1
        merged.append(Execute(seq=1, program=1, t=start, start=start, end=end))
    merged += [event for _, event in events[position:]]
    report = Run().feed_all([Text(id=1, text="work"), *merged]).report()

    owner = ["other"] * 200
    for kind, start, end in reversed(intervals):  # outermost first
        owner[start:end] = [CAUSE[kind]] * (end - start)
    window = range(busy[0][0], busy[-1][1]) if busy else range(0)
    running = {t for start, end in busy for t in range(start, end)}
    truth = Counter(owner[t] for t in window if t not in running)
    got = {cause: round(seconds * 1e9) for cause, seconds in report.idle.causes}
    assert got == dict(truth)
    assert round(report.idle.idle_s * 1e9) == sum(truth.values())
    assert round(report.idle.busy_s * 1e9) == len(running)
    for gap in report.idle.gaps:
        assert round(sum(part for _, part in gap.blame) * 1e9) == round(gap.dur_s * 1e9)
    if len(report.idle.gaps) < 32:
        assert round(sum(gap.dur_s for gap in report.idle.gaps) * 1e9) == sum(truth.values())


anything = st.builds(
    lambda kind, start, dur: told(kind, start, start + dur),
    st.sampled_from(KINDS),
    st.integers(0, 300),
    st.integers(0, 100),
)
extra = st.one_of(
    st.builds(
        lambda t, dur, a, b: Hole(t=t, dur=dur, before=a, after=b), *[st.integers(0, 200)] * 2, *[st.integers(0, 3)] * 2
    ),
    st.builds(
        lambda t, dur, stack, state: Sample(t=t, dur=dur, stack=stack, state=state, at=stack),
        *[st.integers(0, 250)] * 2,
        st.integers(0, 3),
        st.sampled_from(["", "python", "wait", "data", "checkpoint", "gil", "cpu", "of a later version"]),
    ),
    st.builds(lambda t, dur, n: Barrier(t=t, dur=dur, tracing=n), *[st.integers(0, 200)] * 3),
    st.builds(lambda t, dur, num: Step(name=1, num=num, t=t, dur=dur), *[st.integers(0, 200)] * 3),
    st.builds(
        lambda t, dur, device: Execute(seq=1, program=1, t=t, start=t, end=t + dur, device=device),
        *[st.integers(0, 300)] * 2,
        st.integers(0, 1),
    ),
)


@given(st.lists(st.one_of(anything, extra), max_size=60))
def test_whatever_comes_in_whatever_order_the_parts_sum_to_the_whole(events) -> None:
    run = Run().feed_all(events)
    report = run.report()
    idle = report.idle
    assert sum(part for _, part in idle.causes) == pytest.approx(idle.idle_s, abs=1e-12)
    assert idle.busy_s + idle.idle_s == pytest.approx(idle.window_s, abs=1e-12)
    devices = run.settled().devices()
    blamed = sum(tally.total for tally in run.settled().window.idle.causes.values())
    assert blamed == sum(device.idle for device in devices)  # to the nanosecond
    assert all(part >= 0 for _, part in idle.causes)
    for gap in idle.gaps:
        assert sum(part for _, part in gap.blame) == pytest.approx(gap.dur_s, abs=1e-12)
    for stat in report.steps:
        split = stat.split
        parts = [getattr(split, name) for name in split.__struct_fields__ if name not in ("total_s", "device_busy_s")]
        assert sum(parts) == pytest.approx(split.total_s, abs=1e-12)
        assert min(parts) >= 0


def test_causes_have_names() -> None:
    assert set(host.CAUSES) == set(range(15))
