"""Calls that the CPU refuses for shapes or dtypes are refused on ``xla``, in the same words: see :mod:`.calls`."""

from __future__ import annotations

import pytest

from .calls import calls


@pytest.mark.filterwarnings("ignore")
def test_spoilt_calls_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    done = calls(range(300))
    with capsys.disabled():
        print("\n" + done.figures())
    assert done.refused > 0.3 * done.calls  # most of what is spoilt is refused
    assert done.accepted == 0, done.failures
    assert done.otherwise <= 2, done.failures
