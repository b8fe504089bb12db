"""Long recordings are counted and settled in columns: what is known is what one event at a time would have told."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis.test_batches import TICK, few, known, ordered, scopes, streams, threads, tight, timed, trainings
from xlaprof.analysis import fold_columns, run
from xlaprof.analysis.run import Run
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
    Scope,
    Step,
    TransferFromDevice,
    TransferToDevice,
)

__all__ = ["tight"]

ticks = st.integers(0, 40).map(lambda n: n * TICK)
#: What a step may be made of: each takes where it begins and how long it takes.
acts = st.one_of(
    st.builds(lambda n, depth, tid: lambda t, d: Scope(name=n, t=t, dur=d, depth=depth, tid=tid), few, few, threads),
    st.builds(lambda a, b: lambda t, d: Hole(t=t, dur=d, before=a, after=b), few, few),
    st.builds(lambda s, tid: lambda t, d: TransferToDevice(t=t, dur=d, bytes=4, stack=s, tid=tid), few, threads),
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
        lambda p, s, device, trigger: lambda t, d: Execute(
            seq=1, program=p, t=t, start=t, end=t + d, stack=s, device=device, trigger=trigger
        ),
        few, few, st.integers(0, 1), st.sampled_from(["sync", "sync", "read"]),
    ),
    st.just(lambda t, d: Live(t=t, tensors=d, bytes=t)),
    st.just(lambda t, d: Counters(t=t, counts={"ExecuteTime": d})),
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
        if draw(st.integers(0, 9)):
            events.append(Step(name=1, num=num, t=begin, dur=t - begin + TICK))
        t += 2 * TICK
    for event in draw(st.lists(st.one_of(scopes, *timed), max_size=2)):
        events.insert(draw(st.integers(0, len(events))), event)
    return events


def fold(events: list[AnyEvent], cuts: list[int], columns: bool) -> Run:
    """Fed in parts, which are counted in columns as soon as may be, or never."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run, "_FEW", 0 if columns else 512)
        patched.setattr(run, "_LONG", 0 if columns else 1 << 60)
        patched.setattr(fold_columns, "_LEAST", 1)
        folded = Run()
        for begin, end in pairwise([0, *sorted(cuts), len(events)]):
            folded.feed_all(events[begin:end])
        return folded


places = st.lists(st.integers(0, 60), max_size=4)


@given(st.one_of(long_runs(), long_runs(), trainings(), streams.map(ordered)), places)
def test_what_is_counted_at_once_is_what_is_counted_one_by_one(events: list[AnyEvent], cuts: list[int]) -> None:
    assert known(fold(events, cuts, columns=True)) == known(fold(events, cuts, columns=False))


@pytest.mark.usefixtures("tight")
@given(st.one_of(long_runs(), long_runs(), trainings(), streams), places)
def test_and_settled_at_the_same_moments(events: list[AnyEvent], cuts: list[int]) -> None:
    assert known(fold(events, cuts, columns=True).settled()) == known(fold(events, cuts, columns=False).settled())
