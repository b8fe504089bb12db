"""Events fed one at a time, or many at once however they are cut: what is known afterwards is the same, to the bit."""

from __future__ import annotations

from array import array
from collections import deque
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlaprof.analysis.fold import distribution, fold
from xlaprof.analysis.run import Run
from xlaprof.analysis.timeline import window
from xlaprof.analysis.timeline.columns.settle import nothing, settle
from xlaprof.analysis.timeline.window import Window
from xlaprof.events import (
    AnyEvent,
    Barrier,
    Compile,
    DataWait,
    DeviceWait,
    Execute,
    Fallback,
    Gc,
    Header,
    Hole,
    Look,
    Sample,
    Scope,
    Step,
    StepDigest,
    TransferFromDevice,
    TransferToDevice,
)

#: what belongs to the fold and not to what it found
_WORKINGS = {"_handlers", "handlers", "names", "settled_at", "settled_every"}


def known(thing: Any) -> Any:
    """All that an object holds, as plain data; the order of dicts is part of it."""
    if isinstance(thing, dict):
        return [(key, known(value)) for key, value in thing.items()]
    if isinstance(thing, list | tuple | deque | array):
        return [known(one) for one in thing]
    if isinstance(thing, set | frozenset):
        return sorted(thing, key=repr)
    if callable(thing):
        return None
    if hasattr(thing, "__struct_config__") and thing.__struct_config__.frozen:
        return thing
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    if not slots and not hasattr(thing, "__dict__"):
        return thing
    names = [*slots, *getattr(thing, "__dict__", ())]
    return [(name, known(getattr(thing, name))) for name in names if name not in _WORKINGS]


TICK = 50_000  # ns: some gaps are long, some are not
moments, lengths = (st.integers(0, most).map(lambda ticks: ticks * TICK) for most in (400, 60))
few = st.integers(0, 3)
threads = st.sampled_from([1, 1, 1, 2])
odd = st.one_of(lengths, lengths, lengths, st.sampled_from([1 << 46, (1 << 60) - 1]))
scopes = st.builds(Scope, name=few, t=moments, dur=odd, depth=few, tid=threads, stack=few)
timed = [
    st.builds(Gc, t=moments, dur=lengths, generation=few, stack=few),
    st.builds(DataWait, t=moments, dur=lengths, tid=threads),
    st.builds(DeviceWait, t=moments, dur=lengths, stack=few),
    st.builds(
        TransferToDevice, t=moments, dur=lengths, bytes=few, stack=few, tid=threads, calls=few, again=st.booleans(),
        what=few,
    ),
    st.builds(
        TransferFromDevice, t=moments, dur=lengths, wait=lengths, bytes=few, op=few, stack=few, tid=threads,
        late=st.booleans(),
    ),
    st.builds(Fallback, t=moments, dur=lengths, op=few, stack=few),
    st.builds(Hole, t=moments, dur=lengths, before=few, after=few),
    st.builds(Sample, t=moments, dur=lengths, stack=few, state=st.sampled_from(["", "data", "wait", "gil"]), at=few),
    st.builds(Look, t=moments, dur=lengths, stack=few, state=st.sampled_from(["python", "import"])),
    st.builds(
        Barrier, t=moments, dur=lengths, stack=few, ops=few, tracing=lengths, execution=few,
        trigger=st.sampled_from(["sync", "read"]),
    ),
    st.builds(
        Compile, t=moments, dur=lengths, program=few, graph=st.just("g"), ops=few, inputs=few, outputs=few, stack=few,
        trigger=st.sampled_from(["sync", "read", "dynamo"]),
    ),
    st.builds(
        lambda t, dur, device, program, trigger: Execute(
            seq=1, program=program, t=t, start=t, end=t + dur, device=device, trigger=trigger
        ),
        moments, lengths, st.integers(0, 1), few, st.sampled_from(["sync", "read"]),
    ),
    st.builds(Step, name=few, num=few, t=moments, dur=odd, tid=threads),
    st.builds(StepDigest, name=few, num=few, t=moments, dur=lengths, executions=few, busy=lengths, tracing=lengths),
    st.builds(Header, schema=st.just(1), pid=st.sampled_from([1, 1, 1, 2]), mono_ns=moments, unix_ns=moments),
]  # fmt: skip
streams = st.lists(st.one_of(scopes, *timed), max_size=80)


@st.composite
def trainings(draw: st.DrawFn) -> list[AnyEvent]:
    """Steps one after the other, each with what usually is in one, and with whatever else happens."""
    events: list[AnyEvent] = []
    t = 0
    for num in range(draw(st.integers(1, 12))):
        begin = t
        for _ in range(draw(st.integers(0, 4))):
            dur, pause = draw(lengths), draw(few) * TICK
            if draw(st.booleans()):
                events.append(Scope(name=draw(few), t=t, dur=dur, depth=draw(few)))
            else:
                events.append(Hole(t=t, dur=dur, before=draw(few), after=draw(few)))
            t += dur + pause
        tracing = draw(st.integers(0, 2 * (t - begin) // TICK + 1)) * TICK
        dispatch, ran = draw(few) * TICK, draw(lengths)
        events.append(Barrier(t=t, dur=dispatch, tracing=tracing, ops=3, execution=num + 1, stack=draw(few)))
        late = t + draw(few) * TICK
        events.append(Execute(seq=num + 1, program=1, t=t, start=late, end=late + ran, device=draw(st.integers(0, 1))))
        t += dispatch + draw(few) * TICK
        events.append(Step(name=draw(st.integers(0, 1)), num=num, t=begin, dur=t - begin))
    for event in draw(st.lists(st.one_of(scopes, *timed), max_size=3)):
        events.insert(draw(st.integers(0, len(events))), event)
    return events


def ordered(events: list[AnyEvent]) -> list[AnyEvent]:
    """As a recorder would have written them: by when they ended."""
    return sorted(events, key=lambda one: getattr(one, "t", 0) + getattr(one, "dur", 0))


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is held until it is settled, so that a few events fill everything."""
    monkeypatch.setattr(window, "_SETTLE_AT", 6)
    monkeypatch.setattr(window, "KEEP", 3)
    monkeypatch.setattr(window, "GIVE_UP_AT", 40)
    monkeypatch.setattr(fold, "_RELIEVED_EVERY", 7)
    monkeypatch.setattr(distribution, "_EXACT", 4)
    monkeypatch.setattr(distribution, "_BUDGET", 60)
    monkeypatch.setattr(distribution, "_SCARCE", 15)


def check_cuts(events: list[AnyEvent], cuts: list[int]) -> None:
    one_by_one, at_once, in_parts = Run(), Run(), Run()
    for event in events:
        one_by_one.feed(event)
    at_once.feed_all(events)
    for begin, end in pairwise([0, *sorted(cuts), len(events)]):
        in_parts.feed_all(events[begin:end])
    assert known(at_once) == known(one_by_one)
    assert known(in_parts) == known(one_by_one)
    assert at_once.report() == one_by_one.report()


places = st.lists(st.integers(0, 80), max_size=6)


@given(st.one_of(streams.map(ordered), trainings()), places)
def test_however_a_stream_is_cut_the_same_is_known(events: list[AnyEvent], cuts: list[int]) -> None:
    check_cuts(events, cuts)


@pytest.mark.usefixtures("tight")
@given(streams, places)
def test_nor_does_it_matter_where_all_is_settled_at_once_and_in_no_order(
    events: list[AnyEvent], cuts: list[int]
) -> None:
    check_cuts(events, cuts)


def in_columns(events: list[AnyEvent], so: bool) -> Run:
    settle_singly = Window.settle

    def settle_at_once(self: Window, final: bool = False) -> None:
        if final or not settle(self, nothing()):
            settle_singly(self, final)

    with pytest.MonkeyPatch.context() as patched:
        if so:
            patched.setattr(Window, "settle", settle_at_once)
        return Run().feed_all(events).settled()


@pytest.mark.usefixtures("tight")
@given(st.one_of(trainings(), trainings(), streams))
def test_what_is_settled_in_columns_is_what_is_settled_one_by_one(events: list[AnyEvent]) -> None:
    events = [event for event in events if not isinstance(event, Sample)]
    assert known(in_columns(events, so=True)) == known(in_columns(events, so=False))


def test_only_a_long_recording_asks_for_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(fold, "has_numpy", lambda: bool(asked.append(run.events)))
    run = Run()
    for num in range(40_000):
        t = num * 10 * TICK
        scope = Scope(name=1, t=t, dur=5 * TICK)
        execution = Execute(seq=num, program=1, t=t, start=t + TICK, end=t + 2 * TICK)
        run.feed_all([scope, execution, Step(name=2, num=num, t=t, dur=9 * TICK)])
    assert not asked  # a few at a time
    events = [Scope(name=1, t=(40_000 + n) * 10 * TICK, dur=5 * TICK) for n in range(1_000)]
    Run().feed_all(events)
    assert not asked  # a short one
    run.feed_all(events)
    assert asked
    assert asked[0] > 60_000
    assert run.report().steps[0].count == 40_000
