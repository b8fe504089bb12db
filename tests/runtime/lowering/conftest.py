"""The same numbers in every run: how far two right answers may lie apart depends on what they are computed from."""

import pytest
import torch


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
