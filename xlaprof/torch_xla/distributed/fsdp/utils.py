"""``torch_xla.distributed.fsdp.utils``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any

import torch

from xlaprof.runtime.spmd import XLAPatchedLinear, xla_patched_nn_linear_forward
from xlaprof.torch_xla.utils.checkpoint import checkpoint

__all__ = ["XLAPatchedLinear", "apply_xla_patch_to_nn_linear", "checkpoint_module"]


def checkpoint_module(module: torch.nn.Module) -> torch.nn.Module:
    """Make ``module`` recompute its activations in the backward pass instead of keeping them."""
    forward = module.forward

    @functools.wraps(forward)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(v, torch.Tensor) and v.requires_grad for v in (*args, *kwargs.values())):
            return checkpoint(functools.partial(forward, **kwargs), *args)
        return forward(*args, **kwargs)  # a reentrant checkpoint would lead to no gradients

    module.forward = checkpointed
    return module


def apply_xla_patch_to_nn_linear(
    module: torch.nn.Module, patched_function: Callable[..., Any] = xla_patched_nn_linear_forward
) -> torch.nn.Module:
    """Make ``patched_function(linear, input)`` the forward pass of each ``nn.Linear`` in ``module``, itself included.

    Layers whose forward pass is no longer that of ``nn.Linear`` are left as they are.
    """
    for layer in module.modules():
        own = getattr(layer.forward, "__func__", None) is torch.nn.Linear.forward
        if own and isinstance(layer, torch.nn.Linear):
            layer.forward = MethodType(patched_function, layer)  # type: ignore[method-assign]
    return module
