"""Differences of medians: told where there are some, not told where there are none, the same every time."""

import random

import pytest

from xlaprof.analysis.fold.distribution import Distribution
from xlaprof.analysis.gates.difference import correlation, independent, shift


def noisy(middle: float, count: int, seed: int, spread: float = 0.02) -> list[float]:
    dice = random.Random(seed)
    return [middle * (1 + dice.gauss(0, spread)) for _ in range(count)]


def test_a_shift_is_found_and_its_interval_holds_it() -> None:
    told = shift(noisy(0.100, 100, 1), noisy(0.110, 120, 2))
    assert told is not None
    assert told.certain
    assert told.low < 0.010 < told.high
    assert told.by == pytest.approx(0.010, abs=0.002)


def test_the_interval_of_no_shift_holds_zero_about_as_often_as_it_promises() -> None:
    held = sum(
        not told.certain
        for seed in range(400)
        if (told := shift(noisy(1.0, 40, 2 * seed), noisy(1.0, 40, 2 * seed + 1))) is not None
    )
    assert 0.92 <= held / 400 <= 0.995


def test_a_few_steps_of_seconds_move_nothing() -> None:
    steady = noisy(0.01, 60, 3)
    told = shift(steady, [*noisy(0.01, 57, 4), 2.0, 3.0, 4.0])
    assert told is not None
    assert not told.certain


def test_five_values_are_the_fewest() -> None:
    assert shift([1.0] * 4, [1.0] * 100) is None
    assert shift([1.0] * 5, [2.0] * 5) is not None


def test_equal_values_do_not_differ() -> None:
    told = shift([1.0] * 9, [1.0] * 9)
    assert told is not None
    assert (told.by, told.low, told.high, told.certain) == (0.0, 0.0, 0.0, False)


def test_the_same_series_give_the_same_answer() -> None:
    assert shift(noisy(1, 50, 5), noisy(2, 50, 6)) == shift(noisy(1, 50, 5), noisy(2, 50, 6))


def test_fewer_independent_values_mean_less_confidence() -> None:
    a, b = noisy(1.0, 100, 7), noisy(1.01, 100, 8)
    sure, unsure = shift(a, b), shift(a, b, (10.0, 10.0))
    assert sure is not None
    assert unsure is not None
    assert unsure.high - unsure.low > 2 * (sure.high - sure.low)


def test_neighbours_that_are_alike_are_worth_less() -> None:
    slow_minute = [1.0 + 0.001 * (n % 3) for n in range(50)] + [2.0 + 0.001 * (n % 3) for n in range(50)]
    assert correlation(slow_minute) > 0.6
    assert independent(slow_minute, 100) < 25
    assert correlation(noisy(1.0, 100, 9)) < 0.3
    assert correlation([1.0, 2.0] * 50) == 0.0  # taking turns makes nothing more certain
    assert correlation([1.0] * 100) == 0.0
    assert independent([], 0) == 0.0


@pytest.mark.parametrize("count", [3, 400, 4096, 10_000])
def test_a_sample_lies_as_its_distribution_does(count: int) -> None:
    values = Distribution()
    dice = random.Random(count)
    for _ in range(count):
        values.add(int(dice.lognormvariate(16, 0.3)))
    sample = values.sample(400)
    assert len(sample) == min(count, 400)
    assert sample == sorted(sample)
    assert sample[len(sample) // 2] == pytest.approx(values.percentile(0.5), rel=0.02 if count > 3 else 1)
    if count > 3:
        assert sample[int(len(sample) * 0.95)] == pytest.approx(values.percentile(0.95), rel=0.02)


def test_a_sample_of_nothing_is_nothing() -> None:
    assert Distribution().sample(10) == []
