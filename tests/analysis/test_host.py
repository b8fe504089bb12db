"""The host's timeline against one that paints nanosecond by nanosecond."""

from hypothesis import given
from hypothesis import strategies as st

from xlaprof.analysis.host import HostTimeline, Segment

intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30), st.integers(1, 5)), max_size=25)


def painted(segments: list[Segment]) -> dict[int, int]:
    owner = {}
    for start, end, cause, _ in segments:
        assert start < end
        for t in range(start, end):
            assert t not in owner, "segments overlap"
            owner[t] = cause
    return owner


@given(intervals)
def test_what_was_painted_first_stays(told) -> None:
    timeline = HostTimeline()
    truth: dict[int, int] = {}
    for start, dur, cause in told:
        timeline.tell((start, start + dur, cause, 0))
        for t in range(start, start + dur):
            truth.setdefault(t, cause)
    segments = timeline.take(1 << 62)
    assert segments == sorted(segments)
    assert painted(segments) == truth


@given(intervals, intervals, st.integers(0, 90))
def test_many_are_painted_as_one_by_one(told, later, cut) -> None:
    one_by_one, many = HostTimeline(), HostTimeline()
    for part in told, later:
        for timeline in one_by_one, many:
            for start, dur, cause in part:
                timeline.tell((start, start + dur, cause, 0))
        many.paint(many=True)
        assert not many.told
        assert many.take(cut) == one_by_one.take(cut)
    assert many.take(1 << 62) == one_by_one.take(1 << 62)


def test_an_interval_that_is_no_time_is_painted_as_it_always_was() -> None:
    timeline = HostTimeline()
    timeline.tell((0, 1 << 80, 1, 0))
    timeline.paint(many=True)
    assert timeline.take(1 << 62) == [(0, 1 << 62, 1, 0)]


@given(intervals, st.integers(0, 90))
def test_what_is_taken_in_two_parts_is_what_is_taken_at_once(told, cut) -> None:
    once, twice = HostTimeline(), HostTimeline()
    for start, dur, cause in told:
        once.tell((start, start + dur, cause, 0))
        twice.tell((start, start + dur, cause, 0))
    before = twice.take(cut)
    assert all(end <= cut for _, end, _, _ in before)
    assert painted(before) | painted(twice.take(1 << 62)) == painted(once.take(1 << 62))


def test_nothing_is_painted_before_what_was_taken() -> None:
    timeline = HostTimeline()
    timeline.take(50)
    timeline.tell((40, 60, 1, 0))
    timeline.tell((0, 50, 2, 0))
    assert timeline.take(100) == [(50, 60, 1, 0)]
