"""A story told on the CPU and on ``xla``: what it tells of values, shapes, strides and errors has to be the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

Story = Callable[[str], Any]


def numbers(device: str, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """0, 1, 2... in ``shape``, in storage of their own."""
    return torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype).clone().to(device)


def told(story: Story, device: str) -> Any:
    """What ``story`` returns, with tensors as all there is to tell of them."""
    value = story(device)
    leaves, spec = tree_flatten(value)
    tensors = [leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor)]
    values = iter(_values(tensors))
    return tree_unflatten([(*_form(x), next(values)) if isinstance(x, torch.Tensor) else x for x in leaves], spec)


def _form(t: torch.Tensor) -> tuple[Any, ...]:
    return tuple(t.shape), t.dtype, t.stride(), t.storage_offset()


def _values(tensors: list[torch.Tensor]) -> list[Any]:
    """The values of all, by one read."""
    if not tensors:
        return []
    flat = torch.cat([t.reshape(-1).to(torch.complex128).to(tensors[0].device) for t in tensors]).cpu()
    return [piece.tolist() for piece in flat.split([t.numel() for t in tensors])]


def agree(story: Story) -> None:
    """Tell ``story`` on both."""
    expected = told(story, "cpu")
    assert told(story, "xla") == expected


def refused(story: Story) -> tuple[type[Exception], str]:
    """The error that ``story`` ends in on both: its type and first line."""
    errors = []
    for device in ("cpu", "xla"):
        with pytest.raises(Exception) as caught:  # noqa: PT011  # of any type; it is compared
            story(device)
        errors.append((caught.type, str(caught.value).split("\n")[0]))
    assert errors[1] == errors[0]
    return errors[0]
