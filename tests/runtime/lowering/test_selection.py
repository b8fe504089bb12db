"""Selections of known size, against what they are in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from xlaprof.runtime.lowering import selection
from xlaprof.runtime.lowering.registry import Aval, Ctx


def run(lowering: Callable[..., Any], *args: Any, dtype: torch.dtype = torch.int64) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(lowering(Ctx((Aval((), dtype),)), *args))


@settings(max_examples=25)
@given(
    arrays.arrays(np.int8, st.sampled_from([(7,), (3, 4), (2, 3, 2)]), elements=st.integers(-1, 1)), st.integers(0, 4)
)
@pytest.mark.slow
def test_positions_and_coordinates_in_order(mask: np.ndarray, more: int) -> None:
    places = np.flatnonzero(mask)
    np.testing.assert_array_equal(run(selection.positions, mask, len(places)), places)
    padded = np.concatenate([np.argwhere(mask), np.full((more, mask.ndim), -1)])
    np.testing.assert_array_equal(run(selection.coordinates, mask, len(places) + more, -1), padded)


@settings(max_examples=15)
@given(arrays.arrays(np.int64, st.sampled_from([(6, 1), (6, 2), (5, 4)]), elements=st.integers(0, 2)))
def test_rows_in_lexicographic_order_and_equal_ones_in_theirs(rows: np.ndarray) -> None:
    expected = sorted(range(len(rows)), key=lambda i: tuple(rows[i]))
    np.testing.assert_array_equal(run(selection.row_order, rows), expected)


@settings(max_examples=15)
@given(arrays.arrays(np.int64, (5,), elements=st.integers(0, 3)))
def test_repeats_and_counts(numbers: np.ndarray) -> None:
    repeated = np.repeat(np.arange(5), numbers)
    np.testing.assert_array_equal(run(selection.repeated, numbers, len(repeated)), repeated)
    np.testing.assert_array_equal(run(selection.bincount, numbers, None, 4), np.bincount(numbers, minlength=4))
    weights = numbers / 4
    counted = run(selection.bincount, numbers, weights, 4, dtype=torch.float64)
    np.testing.assert_array_equal(counted, np.bincount(numbers, weights, 4))
