"""``torch_xla.experimental.fori_loop``: a function applied a number of times, on the device.

PyTorch/XLA requires this import for ``torch.while_loop`` on ``xla``; here it works without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from xlaprof.runtime.functional.pure import Like, Untraceable, trace, tracing
from xlaprof.runtime.functional.traced_op import repeat
from xlaprof.runtime.trace.tensor import XLATensor

Number = int | torch.Tensor


def fori_loop(lower: Number, upper: Number, body_fun: Callable[..., Any], *init_val: torch.Tensor) -> tuple[Any, ...]:
    """``(left, *values)``: ``values = body_fun(*values)``, ``upper - lower`` times, and how many times are left: 0.

    ``body_fun`` returns as many tensors as ``init_val`` has, of the same shapes and dtypes (a single one by itself).
    Without gradients it is one XLA loop, and bounds on the device are not read. Where a gradient is needed, or
    ``body_fun`` cannot be traced (see ``scan``), the passes are recorded one after another, and the bounds are read.

    Raises ``ValueError`` where the bounds are no numbers, or ``body_fun`` returns other tensors than it was given.
    """
    if not init_val or not all(isinstance(value, torch.Tensor) for value in init_val):
        raise ValueError(f"fori_loop wants tensors to begin with, got {list(init_val)!r}")
    times = _number(upper, "upper") - _number(lower, "lower")
    count: Any = torch.as_tensor(times).to(init_val[0].device, torch.int64)
    values = _on_the_device(count, body_fun, init_val)
    if values is None:
        values = list(init_val)
        for _ in range(int(times)):
            values = _checked(body_fun(*values), init_val)
    return count.clamp(max=0), *values


def _number(bound: Number, name: str) -> Any:
    if isinstance(bound, torch.Tensor) and bound.numel() == 1 and not bound.is_floating_point():
        return bound.reshape(())
    if isinstance(bound, int):
        return bound
    raise ValueError(f"fori_loop counts from lower to upper: {name} has to be one whole number, got {bound!r}")


def _checked(result: Any, like: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    found = list(result) if isinstance(result, (tuple, list)) else [result]
    got = [(tuple(t.shape), t.dtype) if isinstance(t, torch.Tensor) else t for t in found]
    expected = [(tuple(t.shape), t.dtype) for t in like]
    if got != expected:
        raise ValueError(f"fori_loop hands body_fun what it returned: it has to stay {expected}, got {got}")
    return found


def _on_the_device(count: Any, body: Callable[..., Any], carry: tuple[Any, ...]) -> list[torch.Tensor] | None:
    """The values at the end; ``None`` where the passes have to be recorded one by one."""
    if (
        tracing()
        or not all(isinstance(value, XLATensor) for value in carry)
        or carry[0]._storage.tape.partition is not None
    ):
        return None
    like = [Like(tuple(t.shape), t.dtype, t.requires_grad, t.requires_grad) for t in carry]
    try:
        traced = trace(lambda tensors: _checked(body(*tensors), carry), like, carry[0]._storage.tape)
    except Untraceable:
        return None
    return None if traced.backward is not None else repeat(traced, count, carry)
