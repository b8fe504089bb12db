"""Calls that the CPU refuses for shapes or dtypes are refused on ``xla``, in the same words: see :mod:`.calls`."""

from __future__ import annotations

import pytest

from .calls import calls


@pytest.mark.filterwarnings("ignore")
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("seeds", "large"),
    [(range(50), False), (range(50, 100), False), (range(300, 360), True)],
    ids=["small", "more", "large"],
)
def test_spoilt_calls_are_refused(capsys: pytest.CaptureFixture[str], seeds: range, large: bool) -> None:
    done = calls(seeds, large)
    with capsys.disabled():
        print("\n" + done.figures())
    assert done.refused > 0.3 * done.calls  # most of what is spoilt is refused
    assert not done.failures, done.failures
    assert done.elsewhere <= 4  # a few of a thousand
