"""Long recordings are counted and settled in columns: what is known is what one event at a time would have told."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs
from story import Story

from tests.analysis.test_batches import TICK, few, known, ordered, scopes, streams, threads, tight, timed, trainings
from xlaprof.analysis.fold import fold as folding
from xlaprof.analysis.fold.columns import count
from xlaprof.analysis.run import KeptRun, Run
from xlaprof.analysis.timeline import idle, kept, spans
from xlaprof.analysis.timeline.window import Window
from xlaprof.analysis.views import lanes
from xlaprof.events import (
    AnyEvent,
    Barrier,
    Counters,
    DataWait,
    DeviceWait,
    Execute,
    Gc,
    Hole,
    Live,
    Look,
    Scope,
    Step,
    StepDigest,
    TransferFromDevice,
    TransferToDevice,
)

__all__ = ["tight"]

ticks = st.integers(0, 40).map(lambda n: n * TICK)
#: What a step may be made of: each takes where it begins and how long it takes.
acts = st.one_of(
    st.builds(lambda n, depth, tid: lambda t, d: Scope(name=n, t=t, dur=d, depth=depth, tid=tid), few, few, threads),
    st.builds(lambda a, b: lambda t, d: Hole(t=t, dur=d, before=a, after=b), few, few),
    st.builds(
        lambda s, tid, calls, again: lambda t, d: TransferToDevice(
            t=t, dur=d, bytes=4, stack=s, tid=tid, calls=calls, again=again, what=s * again
        ),
        few, threads, few, st.booleans(),
    ),
    st.builds(
        lambda s, op, via, tid, late: lambda t, d: TransferFromDevice(
            t=t, dur=d, wait=d // 2, bytes=4, stack=s, op=op, via=via, tid=tid, late=late
        ),
        few, few, few, threads, st.booleans(),
    ),
    st.builds(lambda s: lambda t, d: Gc(t=t, dur=d, generation=0, stack=s), few),
    st.builds(lambda s, tid: lambda t, d: DataWait(t=t, dur=d, stack=s, tid=tid), few, threads),
    st.builds(lambda s: lambda t, d: DeviceWait(t=t, dur=d, stack=s), few),
    st.builds(
        lambda s, ops, trigger, ran: lambda t, d: Barrier(
            t=t, dur=d, stack=s, ops=ops, trigger=trigger, execution=ran, tracing=d
        ),
        few, few, st.sampled_from(["sync", "sync", "read"]), few,
    ),
    st.builds(
        lambda p, s, device, trigger, calls: lambda t, d: Execute(
            seq=1, program=p, t=t, start=t, end=t + d, stack=s, device=device, trigger=trigger, calls=calls
        ),
        few, few, st.integers(0, 1), st.sampled_from(["sync", "sync", "read"]), st.sampled_from([1, 1, 0, 3, 64]),
    ),
    st.just(lambda t, d: Live(t=t, tensors=d, bytes=t)),
    st.just(lambda t, d: Counters(t=t, counts={"ExecuteTime": d})),
)  # fmt: skip


no_times = st.sampled_from([1 << 45, 1 << 46, 1 << 59, (1 << 60) - 1])
#: What a log may hold that was damaged: any number may be any that is read.
damaged = st.builds(
    lambda kind, field, number: structs.replace(kind, **{field: number}),
    st.sampled_from([
        Scope(name=0, t=TICK, dur=TICK), Hole(t=TICK, dur=TICK), TransferToDevice(t=TICK, dur=TICK, bytes=4),
        TransferFromDevice(t=TICK, dur=TICK, wait=0, bytes=4), Barrier(t=TICK, dur=TICK, execution=1),
        Step(name=1, num=1, t=TICK, dur=TICK), StepDigest(name=1, num=1, t=TICK, dur=TICK),
    ]),
    st.sampled_from(["t", "dur"]), no_times,
) | st.builds(
    lambda fields, number: structs.replace(
        Execute(seq=1, program=0, t=0, start=0, end=TICK), **dict.fromkeys(fields, number)
    ),
    st.sampled_from([["t"], ["start", "end"], ["end"], ["enqueue"]]), no_times,
) | st.builds(
    lambda field, number: structs.replace(Barrier(t=TICK, dur=TICK, execution=1), **{field: number}),
    st.sampled_from(["tracing", "ops"]), no_times,
)  # fmt: skip
triples = st.tuples(st.integers(0, 3), ticks, ticks).map(list)


def digests(t: int, num: int) -> st.SearchStrategy[StepDigest]:
    """A step that began then."""
    places = st.sampled_from(["0:0", "1:1", "2:2"])
    return st.builds(
        StepDigest, name=st.just(1), num=st.just(num), t=st.just(t), dur=st.just(8 * TICK), executions=few, busy=ticks,
        tracing=ticks, barriers=few, scopes=st.dictionaries(st.sampled_from(["0", "1", "3"]), triples),
        reads=st.dictionaries(places, triples, max_size=2),
        fallbacks=st.one_of(st.just({}), st.just({}), st.dictionaries(places, triples, max_size=1)),
    )  # fmt: skip


@st.composite
def long_runs(draw: st.DrawFn) -> list[AnyEvent]:
    """One step again and again, as loops are, though no two take equally long; around it a scope that holds it all."""
    acts_of_step = draw(st.lists(acts, min_size=1, max_size=7))
    events: list[AnyEvent] = []
    t = 0
    for num in range(draw(st.integers(4, 14))):
        begin = t
        for act in acts_of_step:
            dur = draw(ticks)
            events.append(act(t, dur))
            t += dur + draw(few) * TICK
        if draw(st.booleans()):
            events.append(Scope(name=3, t=begin, dur=t - begin, depth=0))
        told = draw(st.integers(0, 9))
        if told > 4:
            events.append(Step(name=1, num=num, t=begin, dur=t - begin + TICK))
        elif told:  # told by its sums: with what it was told by before, mostly
            t = begin + 9 * TICK
            events.append(draw(digests(begin, num)))
        t += 2 * TICK
    for event in draw(st.lists(st.one_of(scopes, *timed, damaged), max_size=2)):
        events.insert(draw(st.integers(0, len(events))), event)
    return events


def fold(events: list[AnyEvent], cuts: list[int], columns: bool, make: type[Run] = Run) -> Run:
    """Fed in parts, which are counted in columns as soon as may be, or never."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(folding, "_FEW", 0 if columns else 512)
        patched.setattr(folding, "_LONG", 0 if columns else 1 << 60)
        patched.setattr(count, "_LEAST", 1)
        folded = make()
        for begin, end in pairwise([0, *sorted(cuts), len(events)]):
            folded.feed_all(events[begin:end])
        return folded


places = st.lists(st.integers(0, 60), max_size=4)

#: a look at the main thread after the first execution, which a digest in the same batch holds
LOOKED_AFTER: list[AnyEvent] = [
    StepDigest(name=0, num=0, t=0, dur=0, executions=0, busy=0, tracing=0),
    Gc(t=0, dur=50_000, generation=0, stack=0),
    Gc(t=0, dur=50_000, generation=0, stack=0),
    StepDigest(name=0, num=0, t=0, dur=0, executions=1, busy=0, tracing=0),
    Look(t=0, dur=50_000, stack=0, state="python"),
]


#: One program that runs at two lines, in turn, on two devices.
AT_TWO_LINES: list[AnyEvent] = [
    event
    for turn in range(4)
    for event in (
        *(Scope(name=0, t=turn * TICK, dur=0) for _ in range(2)),
        *(
            Execute(seq=1, program=0, t=turn * TICK, start=turn * TICK, end=turn * TICK, stack=stack, device=device)
            for stack, device in ((0, 0), (0, 1), (1, 0))
        ),
        StepDigest(name=0, num=0, t=turn * TICK, dur=TICK, executions=0, busy=0, tracing=0),
    )[: 6 if turn == 0 else 5]
]


@example(LOOKED_AFTER, [])
@example(AT_TWO_LINES, [])
@given(st.one_of(long_runs(), long_runs(), trainings(), streams.map(ordered)), places)
def test_what_is_counted_at_once_is_what_is_counted_one_by_one(events: list[AnyEvent], cuts: list[int]) -> None:
    assert known(fold(events, cuts, columns=True).settled()) == known(fold(events, cuts, columns=False).settled())


@pytest.mark.usefixtures("tight")
@given(st.one_of(long_runs(), long_runs(), trainings(), streams), places)
def test_and_settled_at_the_same_moments(events: list[AnyEvent], cuts: list[int]) -> None:
    assert known(fold(events, cuts, columns=True).settled()) == known(fold(events, cuts, columns=False).settled())


def drawn(events: list[AnyEvent], cuts: list[int], columns: bool) -> Any:
    """All that is kept to be drawn, where hardly anything fits."""
    with pytest.MonkeyPatch.context() as patched:
        for module, name, most in (
            (kept, "ROWS", 3), (kept, "GAPS", 7), (kept, "LONGEST", 2), (idle, "LONGEST", 2), (spans, "MOST", 9),
            (lanes, "_RELIEVED_EVERY", 5), (lanes, "_FEW", 0 if columns else 1 << 60),
        ):  # fmt: skip
            patched.setattr(module, name, most)
        run, rows = fold(events, cuts, columns, KeptRun), lanes.Lanes()
        for begin, end in pairwise([0, *sorted(cuts), len(events)]):
            rows.feed_all(events[begin:end])
    assert isinstance(run, KeptRun)
    steps = {name: (one.first, list(one)) for name, one in run.history().steps.items()}
    return steps, told_of(run.history().idle.spans), told_of(rows.spans), rows.uploads, rows.threads


def told_of(drawn: spans.Spans[Any, Any]) -> Any:
    return drawn.grain, {key: (row.whole, row.cells) for key, row in drawn.rows.items()}


@pytest.mark.usefixtures("tight")
@given(st.one_of(long_runs(), long_runs(), trainings(), streams.map(ordered)), places)
@example([*[Scope(0, 0, 0, depth=0), Gc(0, 0, 0)] * 2, StepDigest(0, 0, 50_000, 0, busy=50_000), Gc(0, 0, 0)], [])
def test_what_is_drawn_of_it_is_the_same(events: list[AnyEvent], cuts: list[int]) -> None:
    assert drawn(events, cuts, columns=True) == drawn(events, cuts, columns=False)


def told_singly(events: list[AnyEvent], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many of the events of a long recording were not counted in columns."""
    singly: list[int] = []
    feed_singly = Run._feed_singly

    def noted(self: Run, batch: Sequence[AnyEvent]) -> None:
        singly.append(len(batch))
        feed_singly(self, batch)

    monkeypatch.setattr(Run, "_feed_singly", noted)
    Run(long=True).feed_all(events)
    return sum(singly)


def test_of_a_long_recording_only_what_is_new_is_counted_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[AnyEvent] = []
    for num in range(4_000):
        t = num * 200 * TICK
        events.append(TransferToDevice(t=t, dur=TICK, bytes=4, stack=1))
        events.append(Hole(t=t + TICK, dur=2 * TICK, before=1, after=2))
        events.append(Scope(name=num // 3_000, t=t + 3 * TICK, dur=20 * TICK, depth=0))  # another one from 3,000 on
        events.append(Barrier(t=t + 30 * TICK, dur=TICK, stack=3, ops=9, tracing=20 * TICK, execution=num + 1))
        events.append(Execute(seq=num, program=1, t=t + 30 * TICK, start=t + 30 * TICK, end=t + 90 * TICK, stack=3))
        events.append(TransferFromDevice(t=t + 31 * TICK, dur=60 * TICK, wait=59 * TICK, bytes=4, op=1, stack=4))
        events.append(Step(name=2, num=num, t=t, dur=100 * TICK))
        events.append(StepDigest(name=2, num=num, t=t + 100 * TICK, dur=90 * TICK, scopes={"0": [1, TICK, TICK]}))
    assert told_singly(events, monkeypatch) <= 0.1 * len(events)


def test_looks_at_a_program_that_runs_nothing_on_a_device_are_counted_with_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[AnyEvent] = []
    for num in range(4_000):
        t = num * 200 * TICK
        events.append(Scope(name=0, t=t, dur=20 * TICK, depth=0))
        events.append(Step(name=2, num=num, t=t, dur=100 * TICK))
        events.append(StepDigest(name=2, num=num, t=t + 100 * TICK, dur=90 * TICK, scopes={"0": [1, TICK, TICK]}))
        if num % 100 == 0:
            events.append(Look(t=t + 195 * TICK, dur=50_000, stack=0, state="python"))
    assert told_singly(events, monkeypatch) <= 0.1 * len(events)


@pytest.mark.parametrize("batch", [1, 8_192])
def test_a_window_that_nothing_settles_is_asked_seldom(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that end with their calls take no time that could be seen, so that all of the host's is held back."""
    asked: list[None] = []
    plan = Window.plan_next_settle
    monkeypatch.setattr(Window, "plan_next_settle", lambda window: asked.append(plan(window)))
    story = Story()
    line = story.line(7, "state = turn(state)", loops=(6,))
    for _ in range(12_000):
        with story.step():
            story.execute("turn", 0, line)
            story.emit(DeviceWait(t=story.now, dur=2_000, stack=line))
            story.spend(0.01)
            story.emit(DeviceWait(t=story.now, dur=2_000, stack=line))
    story.finish()
    run = Run()
    for begin in range(0, len(story.events), batch):
        run.feed_all(story.events[begin : begin + batch])
    run.report()
    assert 1 <= len(asked) < 20
