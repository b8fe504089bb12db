"""Calls that the CPU refuses for shapes or dtypes are refused on ``xla``, in the same words: see :mod:`.refusals`."""

from __future__ import annotations

import pytest

from .refusals import figures, refusals


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("calls", [300, pytest.param(20_000, marks=pytest.mark.slow)])
def test_spoilt_calls_are_refused(calls: int, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = list(refusals(seed=0, calls=calls))
    with capsys.disabled():
        print("\n" + figures(outcomes))
    found = [one for one in outcomes if one is not None]
    accepted = [one for one in found if not one.told]
    assert len(found) > 0.3 * calls  # most of what is spoilt is refused
    assert len(accepted) <= 0.02 * len(found), accepted
    assert sum(one.alike for one in found) >= 0.97 * len(found), [one for one in found if not one.alike]
