"""PyTorch's own samples of its operators, forward and backward, through the lowerings they meet."""

from __future__ import annotations

from typing import Any

import op_database
import pytest
import torch

from .harness import check_op_info

#: one of each kind; the whole database is swept through the device (tests/operators)
EVERYDAY = (
    "add",
    "addmm",
    "amax",
    "argmax",
    "cat",
    "clamp",
    "cumsum",
    "div.floor_rounding",
    "nn.functional.gelu",
    "nn.functional.silu",
    "logsumexp",
    "matmul",
    "mean",
    "pow",
    "std.unbiased",
    "where",
)


@pytest.fixture(scope="module")
def infos() -> dict[str, Any]:
    return op_database.entries()


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", EVERYDAY)
def test_everyday_operators(infos: dict[str, Any], name: str) -> None:
    checker = check_op_info(infos[name], dtypes=(torch.float32, torch.int64), limit=2)
    assert not checker.failures, "\n".join(checker.failures)
    assert checker.checked
