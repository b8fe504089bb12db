"""``torch_xla.experimental.gradient_accumulation``: one step's gradients from several batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def gradient_accumulation(
    train_step: Callable[..., Any],
    iterable_tensors: Sequence[torch.Tensor],
    model: torch.nn.Module,
    *carried_tensors: torch.Tensor,
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """The loss, after a forward and a backward pass for each batch along the first dimension of ``iterable_tensors``.

    ``train_step(*batch, *carried)`` returns the loss. Where there are ``carried_tensors``, it returns
    ``(loss, *carried)``, from which the next batch goes on, and so does this function. Losses and gradients are
    averaged over the batches; gradients are added to ``grad`` of ``model``'s parameters. No gradient passes from batch
    to batch through carried tensors.

    The batches are recorded one after another into one graph: unlike in PyTorch/XLA, compile time grows with their
    number.

    Raises ``ValueError`` where ``iterable_tensors`` are none, empty, no tensors or of several lengths, or
    ``train_step`` carries on another number of tensors than it was given.
    """
    steps = _steps(iterable_tensors)
    carried, many = list(carried_tensors), len(carried_tensors)
    total: torch.Tensor | None = None
    for i in range(steps):
        # The step may write in place to these copies; XLA eliminates unneeded ones.
        result = train_step(*(tensor[i] for tensor in iterable_tensors), *(tensor.clone() for tensor in carried))
        loss, *carried = result if isinstance(result, (tuple, list)) else [result]
        if len(carried) != many:
            raise ValueError(
                f"train_step is given {many} carried tensors and has to return as many, got {len(carried)}"
            )
        (loss / steps).backward()
        carried = [tensor.detach() for tensor in carried]
        total = loss.detach() / steps if total is None else total + loss.detach() / steps
    assert total is not None
    return (total, *carried) if many else total


def _steps(tensors: Sequence[torch.Tensor]) -> int:
    if not len(tensors):
        raise ValueError("iterable_tensors are the batches to go through: there has to be at least one tensor")
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"iterable_tensors have to be tensors, number {i} is {tensor!r}")
        if tensor.ndim == 0 or not tensor.numel():
            raise ValueError(
                f"iterable_tensors are gone through by their first dimension, number {i} is empty or has none"
            )
    lengths = [len(tensor) for tensor in tensors]
    if len(set(lengths)) > 1:
        raise ValueError(f"iterable_tensors have to be of one length in their first dimension, got {lengths}")
    return lengths[0]
