"""Preparing a module before its parameters are sharded: those on ``meta`` are created, buffers move and are cast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn


def own_modules(module: nn.Module, wrapper: type[nn.Module]) -> Iterator[nn.Module]:
    """``module`` and the modules inside, without inner wrappers and theirs."""
    yield module
    for child in module.children():
        if not isinstance(child, wrapper):
            yield from own_modules(child, wrapper)


def materialize(
    module: nn.Module,
    init: Callable[[nn.Module], None] | None,
    wrapper: type[nn.Module],
    device: torch.device,
) -> None:
    """Create parameters that are on ``meta``, by ``init(module)`` or, on ``device``, by ``reset_parameters()``.

    Raises ``RuntimeError`` for a module without that method.
    """
    made = [m for m in own_modules(module, wrapper) if any(p.is_meta for p in m.parameters(recurse=False))]
    if not made:
        return
    if init is not None:
        if not callable(init):
            raise ValueError(f"Expected {init} to be callable but got {type(init)}")
        init(module)
        return
    for part in made:
        reset: Any = getattr(part, "reset_parameters", None)
        if reset is None:
            raise RuntimeError(
                f"{type(part).__name__} has parameters on the meta device and no reset_parameters(): "
                "give the wrapper a param_init_fn"
            )
        part.to_empty(device=device, recurse=False)
        with torch.no_grad():
            reset()


def move_buffers(module: nn.Module, wrapper: type[nn.Module], device: torch.device, dtype: torch.dtype) -> None:
    """Move buffers to ``device`` and cast floats to ``dtype``; ``_orig_dtype`` keeps the dtype before."""
    for part in own_modules(module, wrapper):
        for name, buffer in part.named_buffers(recurse=False):
            moved: Any = buffer.to(device, dtype if buffer.is_floating_point() else None)
            if moved.dtype != buffer.dtype:
                moved._orig_dtype = buffer.dtype
            setattr(part, name, moved)
