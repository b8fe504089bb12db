"""The sparkline of step times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from xlaprof.tui.sparkline import EIGHTHS, bars, ceiling

lengths = st.lists(st.floats(min_value=0, max_value=1e4), max_size=200)


def drawn(values: list[float], width: int, height: int) -> list[str]:
    return ["".join(c for c, _ in row) for row in bars(values, width, height)]


def test_a_column_is_a_step_and_the_newest_is_at_the_right() -> None:
    assert drawn([2, 3, 4], width=5, height=1) == ["  ▄▆█"]
    assert drawn([9, 2, 3, 4], width=3, height=1) == ["▄▆█"]


def test_one_compilation_does_not_flatten_the_other_steps() -> None:
    steps = [*[0.008, 0.010, 0.012] * 6, 0.010, 0.010, 1.8]
    assert ceiling(steps) == 3 * 0.010
    row = bars(steps, width=21, height=1)[0]
    assert row[-1] == ("█", True), "the step above the scale is marked"
    assert not any(above for _, above in row[:-1])
    assert {c for c, _ in row[:-1]} == {"▂", "▃"}, "the jitter of the usual steps stays visible"


def test_nothing_to_draw() -> None:
    assert drawn([], width=3, height=2) == ["   ", "   "]
    assert drawn([1.0], width=0, height=2) == ["", ""]
    assert drawn([0.0, 0.0], width=2, height=1) == ["▁▁"]


@given(lengths, st.integers(min_value=0, max_value=120), st.integers(min_value=1, max_value=6))
def test_rows_have_the_size_asked_for_and_columns_are_in_order(values: list[float], width: int, height: int) -> None:
    rows = bars(values, width, height)
    assert [len(row) for row in rows] == [width] * height
    shown = values[-width:] if width else []
    heights = [sum(EIGHTHS.index(row[i][0]) for row in rows) for i in range(width)]
    steps = heights[width - len(shown) :]
    assert all(h >= 1 for h in steps)
    assert all(h == 0 for h in heights[: width - len(shown)])
    by_value = [h for _, h in sorted(zip(shown, steps, strict=True))]
    assert by_value == sorted(by_value), "a longer step is never drawn shorter"
