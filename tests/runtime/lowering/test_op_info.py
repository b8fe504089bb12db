"""PyTorch's own samples of its operators, forward and backward, through the lowerings they meet."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .harness import check_op_info, op_infos

#: one of each kind; the rest of the database is swept by the slow test
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
    return op_infos()


@pytest.mark.parametrize("name", EVERYDAY)
def test_everyday_operators(infos: dict[str, Any], name: str) -> None:
    checker = check_op_info(infos[name], dtypes=(torch.float32, torch.int64), limit=2)
    assert not checker.failures, "\n".join(checker.failures)
    assert checker.checked


#: what is no dense tensor of a CPU program, or a dtype that neither numpy nor jax has
OUT_OF_REACH = ("jiterator", "sparse", "to_sparse", "chalf")
CHUNKS = 16


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_whole_database(infos: dict[str, Any], chunk: int) -> None:
    names = [name for name in sorted(infos) if not name.startswith(OUT_OF_REACH)]
    failures = []
    for name in names[chunk::CHUNKS]:
        failures += [f"{name}: {failure}" for failure in check_op_info(infos[name], limit=3).failures]
    assert not failures, "\n".join(failures)
