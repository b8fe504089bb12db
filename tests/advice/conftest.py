"""Each program runs as in a new process, which begins with a collection: of what the programs made, and no more."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def only_what_programs_made_is_collected() -> Iterator[None]:
    gc.freeze()
    yield
    gc.unfreeze()
