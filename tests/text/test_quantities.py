"""One form for each duration, size and share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlaprof.text.quantities import duration, elapsed, percent, plural, size_text, times


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, "0 s"),
        (-1, "0 s"),
        (12e-9, "12 ns"),
        (999.6e-9, "1 us"),
        (0.000788, "788 us"),
        (999.6e-6, "1.0 ms"),
        (0.00523, "5.2 ms"),
        (0.00996, "10 ms"),
        (0.0123, "12 ms"),
        (0.09996, "100 ms"),
        (0.9996, "1.00 s"),
        (1.824, "1.82 s"),
        (9.996, "10.0 s"),
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
    assert duration(seconds) == written


@given(st.floats(min_value=1e-9, max_value=99))
def test_a_duration_says_the_number_it_was_given(seconds: float) -> None:
    written = duration(seconds)
    number, unit = written.split()
    scale = {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit]
    last_digit = 10 ** -len(number.partition(".")[2])
    assert abs(float(number) - seconds / scale) <= 0.5001 * last_digit
    assert 1 <= float(number) < 1000, "the largest unit in which the number is 1 or more"


@given(st.floats(min_value=0, max_value=1e7))
def test_a_duration_fits_its_column(seconds: float) -> None:
    assert len(duration(seconds)) <= 8


def test_a_clock_that_moves_is_read_coarsely() -> None:
    assert [elapsed(s) for s in (-1, 0.44, 9.9, 12.3, 125)] == ["0.0 s", "0.4 s", "9.9 s", "12 s", "2m 05s"]


def test_percent_does_not_hide_the_small() -> None:
    assert [percent(p) for p in (0, 0.001, 0.005, 0.41, 1)] == ["0%", "<1%", "0%", "41%", "100%"]


@pytest.mark.parametrize(
    ("octets", "written"),
    [
        (0, "0 bytes"),
        (40, "40 bytes"),
        (1000, "1000 bytes"),
        (1023.7, "1 KiB"),
        (4096, "4 KiB"),
        (1.5 * 2**20, "1.5 MiB"),
        (24.46 * 2**20, "24.5 MiB"),
        (1000 * 2**20, "1000 MiB"),
        (36.4 * 2**40, "36.4 TiB"),
        (2.0**72, "4096 EiB"),
    ],
)
def test_size(octets: float, written: str) -> None:
    assert size_text(octets) == written


def test_counts() -> None:
    assert [plural(n, "step") for n in (0, 1, 1234)] == ["0 steps", "1 step", "1,234 steps"]
    assert [times(n) for n in (1, 2, 1234)] == ["once", "twice", "1,234 times"]
