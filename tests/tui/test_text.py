"""Quantities on the screen keep three digits, and strings keep to their cells whatever is in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from xlaprof.analysis.model import Place
from xlaprof.tui import text


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, "0 s"),
        (-1, "0 s"),
        (12e-9, "12.0 ns"),
        (999.6e-6, "1.00 ms"),
        (0.0123, "12.3 ms"),
        (0.09996, "100 ms"),
        (1.824, "1.82 s"),
        (99.94, "99.9 s"),
        (99.96, "1m 40s"),
        (125.4, "2m 05s"),
        (3599.4, "59m 59s"),
        (3599.6, "1h 00m"),
        (3725, "1h 02m"),
        (100 * 3600, "4d 04h"),
    ],
)
def test_duration(seconds: float, written: str) -> None:
    assert text.duration(seconds) == written


@given(st.floats(min_value=1e-9, max_value=99))
def test_a_duration_says_the_number_it_was_given(seconds: float) -> None:
    number, unit = text.duration(seconds).split()
    assert float(number) * {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit] == pytest.approx(seconds, rel=0.006)


@given(st.floats(min_value=0, max_value=1e7))
def test_a_duration_fits_its_column(seconds: float) -> None:
    assert len(text.duration(seconds)) <= 8


def test_percent_does_not_hide_the_small() -> None:
    assert [text.percent(p, 1000) for p in (0, 1, 5, 410, 1000)] == ["0 %", "<1 %", "0 %", "41 %", "100 %"]
    assert text.percent(1, 0) == "0 %"


@given(st.text(), st.integers(min_value=0, max_value=40), st.booleans())
def test_fit_fills_exactly_its_cells(string: str, width: int, right: bool) -> None:
    fitted = text.fit(string, width, right)
    assert cell_len(fitted) == width
    assert fitted.isprintable()


@given(st.text(min_size=1), st.integers(min_value=0, max_value=40))
def test_cut_says_when_it_cuts(string: str, width: int) -> None:
    shown = text.cut(string, width)
    assert cell_len(shown) <= width
    assert shown == text.plain(string) or width == 0 or shown.endswith("…")


@given(st.text(min_size=1), st.integers(min_value=0, max_value=40))
def test_cut_front_keeps_the_end(string: str, width: int) -> None:
    shown, whole = text.cut_front(string, width), text.plain(string)
    assert cell_len(shown) <= width
    assert shown == whole or width == 0 or (shown.startswith("…") and whole.endswith(shown[1:]))


def test_the_line_number_outlives_the_file_name() -> None:
    place = Place(file="/home/ada/a_very_long_module_name.py", line=1295)
    assert text.where(place) == "a_very_long_module_name.py:1295"
    assert text.where(place, 14) == "a_very_l…:1295"
    assert text.where(Place()) == ""
