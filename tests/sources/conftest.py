"""What the tests of torch.compile share: Dynamo as in a new process, before and after each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch._dynamo


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
