"""Distributions: exact where they say so, close elsewhere, in bounded memory."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlaprof.analysis.fold import distribution as module
from xlaprof.analysis.fold.distribution import Distribution, economise

values = st.lists(st.integers(0, 10**12), min_size=1, max_size=200)


def of(numbers: list[int]) -> Distribution:
    distribution = Distribution()
    for number in numbers:
        distribution.add(number)
    return distribution


@given(values)
def test_few_values_are_kept_exactly(numbers) -> None:
    distribution = of(numbers)
    assert distribution.count == len(numbers)
    assert distribution.total == sum(numbers)
    assert (distribution.least, distribution.most) == (min(numbers), max(numbers))
    assert distribution.percentile(0.5) == pytest.approx(statistics.median(numbers))
    assert distribution.percentile(0.0) == min(numbers)
    assert distribution.percentile(1.0) == max(numbers)


def test_many_values_are_within_one_percent() -> None:
    numbers = [1_000_000 + 37 * (n * 7919 % 100_003) for n in range(50_000)]
    distribution = of(numbers)
    assert distribution.count == 50_000
    assert distribution.total == sum(numbers)
    assert (distribution.least, distribution.most) == (min(numbers), max(numbers))
    ordered = sorted(numbers)
    for share in (0.05, 0.5, 0.95, 0.99):
        assert distribution.percentile(share) == pytest.approx(ordered[int(share * 50_000)], rel=0.01)
    assert len(distribution._buckets) < 500
    assert len(distribution._values) <= 4096


@given(values, values)
def test_adding_up_is_as_good_as_adding_one_by_one(one, two) -> None:
    merged = of(one)
    merged.merge(of(two))
    assert merged.total == sum(one) + sum(two)
    assert merged.percentile(0.5) == pytest.approx(of(one + two).percentile(0.5))


def test_values_known_only_as_a_sum_count_as_their_mean() -> None:
    distribution = of([10, 10])
    distribution.add_many(count=3, total=60, most=40)
    assert (distribution.count, distribution.total, distribution.most) == (5, 80, 40)
    assert distribution.percentile(0.9) == pytest.approx(20, rel=0.01)


def test_nothing_has_no_percentile_but_does_not_mind() -> None:
    empty = Distribution()
    assert (empty.count, empty.total, empty.most, empty.percentile(0.5)) == (0, 0, 0, 0.0)


def test_many_distributions_share_one_budget_and_the_largest_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BUDGET", 20_000)
    few = [of([1_000_000 + n, 2_000_000]) for n in range(100)]
    numbers = [1_000_000 + 997 * n for n in range(3_000)]
    many = [of(numbers) for _ in range(60)]
    economise([*few, *many])
    assert sum(one.size for one in (*few, *many)) <= 20_000
    assert all(one.percentile(1.0) == 2_000_000 for one in few)  # exact still
    for one in many:
        assert (one.count, one.total, one.least, one.most) == (3_000, sum(numbers), numbers[0], numbers[-1])
        assert one.percentile(0.5) == pytest.approx(statistics.median(numbers), rel=0.15)


@given(st.lists(st.integers(-5, 10**12), min_size=70, max_size=200), values)
def test_of_distributions_of_different_grain_the_sum_has_the_coarser(numbers, others) -> None:
    coarse = of(numbers)
    coarse.shrink(40)
    assert coarse.size <= 40
    one, two = of(others), coarse.copy()
    one.merge(coarse)
    two.merge(of(others))
    assert (one.count, one.total, one.least, one.most) == (two.count, two.total, two.least, two.most)
    assert one.count == len(numbers) + len(others)
    assert min(numbers) <= coarse.percentile(0.5) <= max(numbers)
