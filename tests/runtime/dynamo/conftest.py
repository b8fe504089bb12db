"""Each test begins with nothing compiled by Dynamo, and nothing recorded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch._dynamo

import xlaprof.runtime as xr


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    xr.sync()
    yield
    torch._dynamo.reset()
    xr.sync()
