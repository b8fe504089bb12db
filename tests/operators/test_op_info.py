"""Every operator PyTorch tests, on ``xla`` beside the CPU: right, and lowered unless the table says why not.

A stratified twentieth is tried every time (each entry in one or two dtypes, a few samples); the slow sweep tries every
sample of every entry in every dtype.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest
import torch
from op_database import entries

from . import outcomes
from .exceptions import FALLBACK, REFUSED
from .sweep import Outcome, dtypes_of, sweep

ENTRIES = functools.cache(entries)
NAMES = sorted(ENTRIES())
#: entries of a kind stand together in the sorted names: every twentieth is of every kind
TWENTIETH = NAMES[3::20]
#: file that keeps the outcomes of the slow sweep, for docs/operators.md
KEEP = os.environ.get("XLAPROF_OUTCOMES")


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", TWENTIETH)
def test_a_twentieth_of_the_database(name: str) -> None:
    for dtype in _two(name):
        _holds(sweep(name, ENTRIES()[name], dtype, limit=3))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_whole_database(name: str) -> None:
    found = [sweep(name, ENTRIES()[name], dtype) for dtype in dtypes_of(ENTRIES()[name])]
    for outcome in found:
        if KEEP:
            outcomes.append(Path(KEEP), outcome)
    for outcome in found:
        _holds(outcome)
    if name in FALLBACK:
        assert any(outcome.fallbacks for outcome in found), f"{name} is lowered now: take it out of the table"
    if name in REFUSED:
        assert any(outcome.failures for outcome in found), f"{name} works now: take it out of the table"


def test_the_tables_speak_of_entries_that_exist() -> None:
    assert set(FALLBACK) | set(REFUSED) <= set(NAMES)
    assert not set(FALLBACK) & set(REFUSED)


def test_at_least_ninety_five_percent_are_lowered() -> None:
    assert len(FALLBACK) + len(REFUSED) <= 0.05 * len(NAMES)


def _two(name: str) -> list[torch.dtype]:
    """float32, and another dtype that changes from entry to entry."""
    there = dtypes_of(ENTRIES()[name])
    others = [dtype for dtype in there if dtype is not torch.float32]
    turn = NAMES.index(name) // 10
    return [dtype for dtype in there if dtype is torch.float32] + ([others[turn % len(others)]] if others else [])


def _holds(outcome: Outcome) -> None:
    if outcome.entry not in REFUSED:
        assert not outcome.failures, "\n".join(outcome.failures[:10])
    if outcome.entry not in FALLBACK and outcome.entry not in REFUSED:
        assert not outcome.fallbacks, f"{outcome.entry} {outcome.dtype} ran on the CPU: {outcome.fallbacks}"
