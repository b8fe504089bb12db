"""Modes are of the whole process: each test leaves lazy mode behind."""

from collections.abc import Iterator

import pytest

import xlaprof.runtime as xr


@pytest.fixture
def eager() -> Iterator[None]:
    """Eager mode for the test."""
    xr.sync()
    with xr.eager_mode_context(True):
        yield
