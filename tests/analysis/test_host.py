"""The host's timeline against one that paints nanosecond by nanosecond."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from xlaprof.analysis.timeline.columns.host import paint
from xlaprof.analysis.timeline.columns.intervals import NotVectorizable, table
from xlaprof.analysis.timeline.host import HostTimeline, Segment

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
        timeline.unpainted.append((start, start + dur, cause, 0))
        for t in range(start, start + dur):
            truth.setdefault(t, cause)
    segments = timeline.take(1 << 62)
    assert segments == sorted(segments)
    assert painted(segments) == truth


@given(intervals, st.integers(0, 90), st.booleans())
def test_many_at_once_are_painted_as_one_by_one_or_not_at_all(told, horizon, in_order) -> None:
    if in_order:  # as a recorder tells them: what lies in an interval before it
        told = sorted(told, key=lambda one: (one[0] + one[1], -one[0]))
    timeline = HostTimeline()
    timeline.take(horizon)
    rows = [(start, start + dur, cause, nth) for nth, (start, dur, cause) in enumerate(told)]
    for row in rows:
        timeline.unpainted.append(row)
    segments = timeline.take(1 << 62)
    try:
        assert [tuple(row) for row in paint(table(rows, 4), horizon).T.tolist()] == segments
    except NotVectorizable:
        assert not nested(rows, horizon)


def nested(rows: list[Segment], horizon: int) -> bool:
    """Whether all of them lie in each other or apart, and what lies in an interval was told before it."""
    solid = [(max(start, horizon), end) for start, end, *_ in rows if end > max(start, horizon)]
    return all(
        one[1] <= two[0] or two[1] <= one[0] or (two[0] <= one[0] and one[1] <= two[1])
        for one, two in combinations(solid, 2)
    )


@given(intervals, st.integers(0, 90))
def test_what_is_taken_in_two_parts_is_what_is_taken_at_once(told, cut) -> None:
    once, twice = HostTimeline(), HostTimeline()
    for start, dur, cause in told:
        once.unpainted.append((start, start + dur, cause, 0))
        twice.unpainted.append((start, start + dur, cause, 0))
    before = twice.take(cut)
    assert all(end <= cut for _, end, _, _ in before)
    assert painted(before) | painted(twice.take(1 << 62)) == painted(once.take(1 << 62))


def test_nothing_is_painted_before_what_was_taken() -> None:
    timeline = HostTimeline()
    timeline.take(50)
    timeline.unpainted.append((40, 60, 1, 0))
    timeline.unpainted.append((0, 50, 2, 0))
    assert timeline.take(100) == [(50, 60, 1, 0)]
