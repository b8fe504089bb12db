"""``torch_xla.distributed.fsdp.utils``."""

from __future__ import annotations

import functools
from typing import Any

import torch

from xlaprof.runtime.spmd import XLAPatchedLinear, apply_xla_patch_to_nn_linear
from xlaprof.torch_xla.utils.checkpoint import checkpoint

__all__ = ["XLAPatchedLinear", "apply_xla_patch_to_nn_linear", "checkpoint_module"]


def checkpoint_module(module: torch.nn.Module) -> torch.nn.Module:
    """Have ``module`` compute its activations again in the backward pass instead of keeping them."""
    forward = module.forward

    @functools.wraps(forward)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(v, torch.Tensor) and v.requires_grad for v in (*args, *kwargs.values())):
            return checkpoint(functools.partial(forward, **kwargs), *args)
        return forward(*args, **kwargs)  # a reentrant checkpoint would lead to no gradients

    module.forward = checkpointed
    return module
