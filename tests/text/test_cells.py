"""Strings keep to their cells whatever is in them; bars and sparklines are to scale."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from xlaprof.text.cells import COLUMNS, bar, ceiling, columns, fit, shorten, shorten_place, sparkline
from xlaprof.text.strings import clip, file_line, path_line, printable

lengths = st.lists(st.floats(min_value=0, max_value=1e4), max_size=200)


def drawn(values: list[float], width: int, height: int) -> list[str]:
    return ["".join(c for c, _ in row) for row in columns(values, width, height)]


def test_a_column_is_a_step_and_the_newest_is_at_the_right() -> None:
    assert drawn([2, 3, 4], width=5, height=1) == ["  ▄▆█"]
    assert drawn([9, 2, 3, 4], width=3, height=1) == ["▄▆█"]


def test_one_compilation_does_not_flatten_the_other_steps() -> None:
    steps = [*[0.008, 0.010, 0.012] * 6, 0.010, 0.010, 1.8]
    assert ceiling(steps) == 3 * 0.010
    row = columns(steps, width=21, height=1)[0]
    assert row[-1] == ("█", True), "the step above the scale is marked"
    assert not any(above for _, above in row[:-1])
    assert {c for c, _ in row[:-1]} == {"▂", "▃"}, "the jitter of the usual steps stays visible"


def test_nothing_to_draw() -> None:
    assert drawn([], width=3, height=2) == ["   ", "   "]
    assert drawn([1.0], width=0, height=2) == ["", ""]
    assert drawn([0.0, 0.0], width=2, height=1) == ["▁▁"]


@given(lengths, st.integers(min_value=0, max_value=120), st.integers(min_value=1, max_value=6))
def test_rows_have_the_size_asked_for_and_columns_are_in_order(values: list[float], width: int, height: int) -> None:
    rows = columns(values, width, height)
    assert [len(row) for row in rows] == [width] * height
    shown = values[-width:] if width else []
    heights = [sum(COLUMNS.index(row[i][0]) for row in rows) for i in range(width)]
    steps = heights[width - len(shown) :]
    assert all(h >= 1 for h in steps)
    assert all(h == 0 for h in heights[: width - len(shown)])
    by_value = [h for _, h in sorted(zip(shown, steps, strict=True))]
    assert by_value == sorted(by_value), "a longer step is never drawn shorter"


@pytest.mark.parametrize(
    ("share", "shown"), [(0, ""), (1e-9, "▏"), (0.5, "████"), (1, "████████"), (7, "████████"), (0.0625, "▌")]
)
def test_bars(share: float, shown: str) -> None:
    assert bar(share, 8) == shown


def test_sparklines() -> None:
    assert sparkline([1, 2, 4], 10) == "▂▄█"
    assert sparkline([0, 0], 10) == "▁▁"
    assert sparkline([9, 1, 1, 1], 3) == "███"
    assert sparkline([], 5) == ""


def test_shortening_keeps_what_matters() -> None:
    assert shorten("abcdef", 4) == "abc…"
    assert shorten("/a/long/path.py", 8, keep_end=True) == "…path.py"
    assert printable("a\tb\x1b\ud800") == "a b\ufffd\ufffd"


@given(st.text(), st.integers(min_value=0, max_value=40), st.booleans())
def test_fit_fills_exactly_its_cells(string: str, width: int, right: bool) -> None:
    fitted = fit(string, width, right)
    assert cell_len(fitted) == width
    assert fitted.isprintable()


@given(st.text(min_size=1), st.integers(min_value=0, max_value=40))
def test_cut_says_when_it_cuts(string: str, width: int) -> None:
    shown = shorten(string, width)
    assert cell_len(shown) <= width
    assert shown == printable(string) or width == 0 or shown.endswith("…")


@given(st.text(min_size=1), st.integers(min_value=0, max_value=40))
def test_cut_front_keeps_the_end(string: str, width: int) -> None:
    shown, whole = shorten(string, width, keep_end=True), printable(string)
    assert cell_len(shown) <= width
    assert shown == whole or width == 0 or (shown.startswith("…") and whole.endswith(shown[1:]))


def test_the_line_number_outlives_the_file_name() -> None:
    file = "/home/ada/a_very_long_module_name.py"
    assert shorten_place(file, 1295) == "a_very_long_module_name.py:1295"
    assert shorten_place(file, 1295, 14) == "a_very_l…:1295"
    assert shorten_place("", 0) == ""


def test_a_line_of_code_by_name_and_by_path() -> None:
    assert file_line(r"C:\\ada\train.py", 12) == file_line("/home/ada/train.py", 12) == "train.py:12"
    assert path_line("/home/ada/train.py", 12) == "/home/ada/train.py:12"
    assert path_line("", 0) == "no line is known"
    assert clip("abcdef", 6) == "abcdef"
    assert clip("abcdefg", 6) == "abc..."
