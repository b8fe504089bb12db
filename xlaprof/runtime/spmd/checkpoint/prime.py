"""State for optimizers that have not stepped, so that a checkpoint can be loaded into it."""

from __future__ import annotations

import torch

from xlaprof.runtime.modes import barriers
from xlaprof.runtime.spmd.annotate import mark
from xlaprof.runtime.spmd.tensors.layout import sharding_of
from xlaprof.runtime.trace.tensor import XLATensor


def prime_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Make ``optimizer`` create its state, by a step with zero gradients, before a checkpoint is loaded.

    The step may change parameters, by weight decay for example.
    """
    barriers.sync(wait=True)
    for group in optimizer.param_groups:
        for param in group["params"]:
            if param.requires_grad:
                param.grad = torch.zeros_like(param, requires_grad=False)
                sharding = sharding_of(param) if isinstance(param, XLATensor) else None
                if sharding is not None:
                    mark(param.grad, sharding)
    optimizer.step()
    barriers.sync(wait=True)
    return optimizer
