"""Checkpoints: what is computed again in the backward pass is what was computed before, dropout and all."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import (
    CheckpointError,
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import xlaprof.runtime as xr

from .both import numbers, told_on_both


@pytest.mark.parametrize("reentrant", [True, False])
def test_dropout_drops_the_same_again_and_later_numbers_do_not_notice(reentrant: bool) -> None:
    def drop(x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(x, 0.5) * x

    torch.manual_seed(0)
    x = torch.ones(64, device="xla", requires_grad=True)
    y = checkpoint(drop, x, use_reentrant=reentrant)
    xr.sync()
    torch.rand(3, device="xla")  # draws between the passes
    state = torch.xla.get_rng_state()
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, 2 * y)
    assert 0 < (y == 0).sum() < 64
    assert torch.equal(torch.xla.get_rng_state(), state)


@told_on_both
def test_a_model_in_checkpointed_pieces(device: str) -> Any:
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)]).double()
    for i, parameter in enumerate(model.parameters()):
        parameter.data = numbers(*parameter.shape, device="cpu", seed=i)
    model.to(device)
    x = numbers(2, 4, device=device, grad=True)
    checkpoint_sequential(model, 2, x, use_reentrant=False).sum().backward()
    checkpoint_sequential(model, 2, x, use_reentrant=True).sum().backward()
    return x.grad, [parameter.grad for parameter in model.parameters()]


@told_on_both
def test_a_policy_says_what_is_kept(device: str) -> Any:
    again: list[str] = []

    def keep_products(ctx: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        if ctx.is_recompute:
            again.append(str(operator))
        product = operator is torch.ops.aten.mm.default
        return CheckpointPolicy.MUST_SAVE if product else CheckpointPolicy.PREFER_RECOMPUTE

    x, w = numbers(3, 3, device=device, grad=True), numbers(3, 3, device=device, seed=1, grad=True)
    contexts = partial(create_selective_checkpoint_contexts, keep_products)
    y = checkpoint(lambda x: torch.mm(x.sin(), w).exp(), x, use_reentrant=False, context_fn=contexts)
    y.sum().backward()
    return x.grad, w.grad, [name for name in again if "detach" not in name]


def test_a_function_that_computes_something_else_the_second_time_is_refused() -> None:
    calls = iter([3, 2])
    x = numbers(3, 3, device="xla", grad=True)
    y = checkpoint(lambda x: x[: next(calls)].sin().exp(), x, use_reentrant=False)
    with pytest.raises(CheckpointError, match="different metadata"):
        y.sum().backward()
