"""Clocks that jump, events out of order, twice or missing, ranks mixed: no crash, and nothing negative."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from story import MS, Story

from xlaprof.analysis.model import Report
from xlaprof.analysis.run import Run
from xlaprof.events import Event, Execute, Header, Sample
from xlaprof.pages.json import to_json


def training(rank: int = 0, start: int = 0) -> list[Event]:
    """A run with something of everything."""
    story = Story(rank=rank, start=start)
    barrier, read = story.line(20, "xr.sync()"), story.line(22, "loss.item()")
    before, after = story.line(12, "y = model(x)"), story.line(15, "z = y + 1")
    for step in range(12):
        with story.step():
            story.data(3, barrier)
            with story.scope("augment"):
                story.spend(4)
            story.python(6, before, after)
            story.emit(Sample(t=story.now - 5 * MS, dur=5 * MS, stack=after, state="wait"))
            story.trace(2)
            story.upload(1, before)
            story.barrier(barrier, device=8, compile=50, graph=f"g{step % 3}", ops=100 + step)
            story.read(read)
            if step % 4 == 0:
                story.fallback(read, "aten::nonzero", 2)
                story.gc(5, barrier)
    return story.finish()


def moved(event: Event, by: int) -> Event:
    """The same, told by a clock that has jumped."""
    if not hasattr(event, "t"):
        return event
    if isinstance(event, Execute):
        return msgspec.structs.replace(event, t=event.t + by, start=event.start + by, end=event.end + by)
    return msgspec.structs.replace(event, t=event.t + by)


def damaged(seed: int, how: str) -> list[Event]:
    rng = random.Random(seed)
    events = training()
    if how == "shuffled":
        rng.shuffle(events)
    elif how == "locally shuffled":
        for i in range(0, len(events), 6):
            part = events[i : i + 6]
            rng.shuffle(part)
            events[i : i + 6] = part
    elif how == "missing":
        events = [event for event in events if rng.random() < 0.6]
    elif how == "twice":
        events = [event for event in events for _ in range(rng.choice((1, 1, 2)))]
    elif how == "jumps":
        jump = 0
        for i in range(len(events)):
            if rng.random() < 0.05:
                jump = rng.randrange(10**12)
            events[i] = moved(events[i], jump)
    elif how == "ranks mixed":
        other = training(rank=1, start=rng.randrange(1_000_000))
        mixed: list[Event] = []
        while events or other:
            source = events if events and (not other or rng.random() < 0.5) else other
            mixed.append(source.pop(0))
        events = mixed
    elif how == "huge":
        events = [
            msgspec.structs.replace(event, dur=rng.choice((0, 2**59, 2**60 - 1)))  # type: ignore[call-arg]
            if hasattr(event, "dur") and rng.random() < 0.2
            else event
            for event in events
        ]
    elif how == "no names":
        events = [event for event in events if type(event).__name__ not in ("Text", "Stack")]
    return events


HOW = ("shuffled", "locally shuffled", "missing", "twice", "jumps", "ranks mixed", "huge", "no names")


def negative(value: Any, path: str = "$") -> list[str]:
    """Paths of the lengths and counts below 0; moments and numbers of steps may be."""
    if isinstance(value, dict):
        return [found for key, item in value.items() if key not in FREE for found in negative(item, f"{path}.{key}")]
    if isinstance(value, list):
        return [found for i, item in enumerate(value) for found in negative(item, f"{path}[{i}]")]
    return [f"{path} = {value}"] if isinstance(value, int | float) and value < 0 else []


#: what may be below 0: moments, the number of a step (-1: outside of all), what a clock said
FREE = ("step", "start_s", "started_unix_s", "last_num")


def check(report: Report) -> None:
    idle = report.idle
    whole = max(idle.window_s, 1.0)
    assert abs(sum(part for _, part in idle.causes) - idle.idle_s) <= 1e-9 * whole
    assert abs(idle.busy_s + idle.idle_s - idle.window_s) <= 1e-9 * whole
    told = to_json(report)
    assert negative({"idle": told["idle"], "scopes": told["scopes"], "compilation": told["compilation"]}) == []
    for finding in report.findings:
        assert finding.count >= 0
        assert finding.place.line >= 0


@settings(max_examples=60)
@given(st.integers(0, 10**9), st.sampled_from([how for how in HOW if how not in ("huge",)]))
def test_a_damaged_recording_is_reported_on(seed: int, how: str) -> None:
    check(Run().feed_all(damaged(seed, how)).report())


@settings(max_examples=20)
@given(st.integers(0, 10**9))
def test_lengths_that_cannot_be_do_not_stop_the_report(seed: int) -> None:
    report = Run().feed_all(damaged(seed, "huge")).report()
    assert all(part >= 0 for _, part in report.idle.causes)


@settings(max_examples=20)
@given(st.integers(0, 10**9), st.sampled_from(HOW), st.integers(0, 15))
def test_beginning_at_a_step_of_a_damaged_recording(seed: int, how: str, since: int) -> None:
    run = Run(since_step=since).feed_all(damaged(seed, how))
    if not run.waiting:
        assert run.report().idle.idle_s >= 0


def test_places_that_were_never_named_are_unknown_and_not_somebody_elses() -> None:
    report = Run().feed_all(damaged(0, "no names")).report()
    assert {finding.place.file for finding in report.findings} <= {""}


def test_two_headers_are_two_recordings() -> None:
    events = [*training(), *training(rank=1)]
    report = Run().feed_all(events).report()
    assert sum(isinstance(event, Header) for event in events) == 2
    assert sum(stat.count for stat in report.steps) == 24
