"""What the tests of sources share: Dynamo as in a new process; calls of jitted functions that are told one by one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch._dynamo

from xlaprof.sources.jax import device


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call is told by itself, as are those that are far apart, however fast they come."""
    monkeypatch.setattr(device, "APART_NS", 0)
