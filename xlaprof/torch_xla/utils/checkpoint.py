"""``torch_xla.utils.checkpoint``: activations computed again in the backward pass instead of kept.

PyTorch's own function works on every device. Here the second computation reads its inputs through an optimization
barrier; without it, XLA would merge both computations and keep the activations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint

from xlaprof.runtime.tape.computations import optimization_barrier


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool = True, **kwargs: Any) -> Any:
    """``torch.utils.checkpoint.checkpoint`` of ``function(*args)``."""
    calls = 0

    def guarded(*inputs: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:  # the backward pass
            inputs = optimization_barrier(inputs)
        return function(*inputs, **named)

    return torch.utils.checkpoint.checkpoint(guarded, *args, use_reentrant=use_reentrant, **kwargs)
