"""What holds for the tests of models: their programs are large, and run a few times each."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest
from op_database import QUICK

import xlaprof.runtime as xr


@pytest.fixture(autouse=True)
def compiled_quickly() -> Iterator[None]:
    """Programs compiled without optimisation, and forgotten after the test: they exhaust the process's memory maps."""
    xr.set_custom_compile_options(QUICK)
    try:
        yield
    finally:
        xr.set_custom_compile_options({})
        xr.clear_compile_cache()
        jax.clear_caches()
