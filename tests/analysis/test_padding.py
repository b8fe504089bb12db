"""The advisor on padding finds what trying everything finds, and says what each choice costs."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlaprof.analysis.evidence.padding import best, choices, unit_seconds


def padded(seen: dict[int, int], edges: tuple[int, ...]) -> int:
    return sum(count * min(edge for edge in edges if edge >= size) for size, count in seen.items())


@given(
    seen=st.dictionaries(st.integers(1, 200), st.integers(1, 50), min_size=1, max_size=9),
    compile_s=st.floats(0.001, 10),
    unit_s=st.floats(0, 0.01),
)
def test_no_other_boundaries_waste_less(seen: dict[int, int], compile_s: float, unit_s: float) -> None:
    found = choices(seen, compile_s, unit_s)
    assert [one.compiles for one in found] == list(range(1, min(len(seen), 8) + 1))
    total = sum(size * count for size, count in seen.items())
    for one in found:
        tried = [padded(seen, edges) for edges in combinations(sorted(seen), one.compiles) if edges[-1] == max(seen)]
        units = padded(seen, one.edges)
        assert units == min(tried)
        assert len(one.edges) == one.compiles
        assert list(one.edges) == sorted(set(one.edges))
        assert one.waste == pytest.approx((units - total) / units)
        assert one.cost_s == pytest.approx(one.compiles * compile_s + (units - total) * unit_s)
        assert one.saved_s == pytest.approx((len(seen) - one.compiles) * compile_s)
    chosen = best(found)
    assert chosen is not None
    assert chosen.cost_s == min(one.cost_s for one in found)


@given(st.dictionaries(st.integers(1, 10_000), st.integers(1, 9), min_size=40, max_size=400))
def test_more_buckets_never_waste_more(seen: dict[int, int]) -> None:
    waste = [one.waste for one in choices(seen, 1.0, 1e-3)]
    assert waste == sorted(waste, reverse=True)
    assert waste[-1] >= 0


def test_cheap_compiles_make_many_buckets_and_expensive_ones_few() -> None:
    seen = dict.fromkeys(range(1, 9), 100)
    cheap, expensive = best(choices(seen, 1e-6, 1e-3)), best(choices(seen, 100.0, 1e-3))
    assert cheap is not None
    assert expensive is not None
    assert cheap.edges == tuple(range(1, 9))
    assert expensive.edges == (8,)


def test_what_was_compiled_besides_the_sizes_counts_as_saved() -> None:
    (one,) = choices({32: 18, 8: 3}, 2.0, 0.0, compiled=5, most=1)
    assert one.edges == (32,)
    assert one.saved_s == pytest.approx(8.0)
    assert one.waste == pytest.approx(3 * 24 / (21 * 32))


def test_sizes_that_make_no_sense_are_left_out() -> None:
    assert choices({}, 1.0, 1.0) == ()
    assert choices({0: 4, -3: 2, 7: 0}, 1.0, 1.0) == ()
    assert best(()) is None


def test_very_many_sizes_are_joined_with_their_neighbours() -> None:
    found = choices(dict.fromkeys(range(1, 5001), 1), 1.0, 0.0, most=3)
    assert [one.edges[-1] for one in found] == [5000, 5000, 5000]
    middle = found[1].edges[0]
    assert 2400 < middle < 2600


def test_the_device_time_of_a_unit_is_the_slope_over_the_sizes() -> None:
    assert unit_seconds({10: (4, 4 * 0.030), 20: (2, 2 * 0.050)}) == pytest.approx(0.002)
    assert unit_seconds({10: (4, 4 * 0.030)}) == pytest.approx(0.003)
    assert unit_seconds({10: (1, 0.05), 20: (1, 0.05)}) == pytest.approx(0.05 / 15)
    assert unit_seconds({}) == 0.0
    assert unit_seconds({8: (0, 1.0)}) == 0.0
