"""Budgets as people write them down: names, values with units, and what is said of those that are none."""

import pytest

from xlaprof.analysis.gates.limits import LIMITS, Budget, BudgetError, budget


def test_names_go_with_dashes_or_underscores() -> None:
    assert budget({"max-recompiles": 1, "after_step": 10}) == Budget(max_recompiles=1, after_step=10)


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("max_recompiles", "3", 3),
        ("max_recompiles", 0, 0),
        ("max_transfers_per_step", "0.1", 0.1),
        ("max_idle", "10%", 0.1),
        ("max_idle", " 12.5 % ", 0.125),
        ("max_idle", 0.25, 0.25),
        ("max_idle", 0, 0.0),
        ("max_step_time", "50ms", 0.05),
        ("max_step_time", "1.5 min", 90.0),
        ("max_step_time", "2S", 2.0),
        ("max_step_time", "1e3us", 1e-3),
        ("max_step_time", 0.2, 0.2),
        ("max_memory", "512MiB", 512 * 2**20),
        ("max_memory", "16 GB", 16e9),
        ("max_memory", 1000, 1000),
        ("no_fallback", True, True),
        ("no_findings", True, "low"),
        ("no_findings", "high", "high"),
        ("no_findings", False, ""),
        ("ignore", "transfer", ("transfer",)),
        ("ignore", ["transfer", "3803bc14f5b2"], ("transfer", "3803bc14f5b2")),
    ],
)
def test_values_of_each_kind(name: str, value: object, read: object) -> None:
    assert getattr(budget({name: value}), name) == pytest.approx(read)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_recompiles", -1),
        ("max_recompiles", "many"),
        ("max_recompiles", 1.5),
        ("max_recompiles", True),
        ("max_transfers_per_step", "nan"),
        ("max_transfers_per_step", "inf"),
        ("max_idle", "110%"),
        ("max_idle", 10),
        ("max_step_time", "50"),  # of what?
        ("max_step_time", "50 parsecs"),
        ("max_step_time", "-1s"),
        ("max_memory", "16 giga"),
        ("no_fallback", "yes"),
        ("no_findings", "awful"),
        ("ignore", [1]),
        ("ignore", 7),
        ("after_step", None),
    ],
)
def test_a_value_that_is_none_of_its_kind_is_reported_with_what_it_should_be(name: str, value: object) -> None:
    with pytest.raises(BudgetError) as raised:
        budget({name: value}, "pyproject.toml")
    assert str(raised.value).startswith(f"pyproject.toml: {name} is {value!r}, but should be ")
    assert "\n" not in str(raised.value)


def test_an_unknown_name_is_reported_with_the_nearest() -> None:
    with pytest.raises(BudgetError, match="unknown budget 'max-recompile': did you mean 'max_recompiles'"):
        budget({"max-recompile": 0})
    with pytest.raises(BudgetError, match="there are max_recompiles, "):
        budget({"colour": "red"})


def test_a_name_written_in_both_ways_is_one_too_many() -> None:
    with pytest.raises(BudgetError, match="max_recompiles is there twice"):
        budget({"max-recompiles": 0, "max_recompiles": 1})


def test_zero_is_a_limit_and_nothing_is_none() -> None:
    assert Budget().empty
    assert Budget(after_step=3, ignore=("transfer",)).empty  # says how, but not what
    for limit in LIMITS:
        if limit.limits and limit.sort not in ("flag", "severity"):
            assert not budget({limit.name: 0}).empty, limit.name


def test_what_is_said_later_comes_first() -> None:
    here = budget({"max_recompiles": 0, "max_idle": "5%"})
    there = budget({"max_recompiles": 7, "no_fallback": True, "ignore": ["transfer"]})
    assert here.over(there) == Budget(max_recompiles=0, max_idle=0.05, no_fallback=True, ignore=("transfer",))
