"""The operators of ``torch.amp.GradScaler("xla")``: unscale gradients and find infinities, update the scale.

Both are recorded. The scaler itself reads one number per step from the device.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import torch

from xlaprof.runtime.dispatch.handlers import special
from xlaprof.runtime.tape.grow import Pseudo
from xlaprof.runtime.trace.trie import Ref, Spec

aten = torch.ops.aten


def _any_non_finite(ctx: Any, found: Any, *gradients: Any) -> Any:
    one = jnp.ones((), found.dtype)
    for gradient in gradients:
        found = jnp.where(jnp.isfinite(gradient).all(), found, one)
    return found


#: ``(found, *gradients) -> found``: 1 if a gradient contains an infinity or NaN, otherwise unchanged
NON_FINITE: Any = Pseudo("xlaprof.non_finite", _any_non_finite)


@special("aten._amp_foreach_non_finite_check_and_unscale_.default")
def check_and_unscale(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Multiply gradients by ``inv_scale``; set ``found_inf`` to 1 if one is not finite."""
    gradients, found_inf, inv_scale = args
    for name, tensor in (("inv_scale", inv_scale), ("found_inf", found_inf)):
        if tensor.numel() != 1:
            raise RuntimeError(f"{name} must be a 1-element tensor.")
        if tensor.dtype is not torch.float32:
            raise RuntimeError(f"{name} must be a float tensor.")
    if not gradients:
        return
    storage = found_inf._storage
    tape = storage.tape
    with tape.lock:
        slots = [tape.slot_of(tensor._storage) for tensor in (found_inf, *gradients)]
        refs = tuple(Ref(slot) for slot in slots)
        tape.write(storage, tape.pseudo(NON_FINITE, (NON_FINITE, *slots), refs, {}, Spec(storage.sig)))
    factor = aten.view.default(inv_scale, ()) if inv_scale.ndim else inv_scale
    for gradient in gradients:
        if gradient.dtype in (torch.float16, torch.bfloat16):
            # in float32: the factor may be 0 in half precision
            gradient.copy_(gradient.float() * factor)
        else:
            gradient.mul_(factor)


@special("aten._amp_update_scale_.default")
def update_scale(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Shrink the scale after a step with infinities, grow it after ``growth_interval`` steps in a row without."""
    scale, growth_tracker, found_inf, growth_factor, backoff_factor, growth_interval = args
    found = found_inf.view(scale.shape) != 0
    steps = growth_tracker + 1
    due = steps == growth_interval
    grown = scale * growth_factor
    grown = torch.where(due & grown.isfinite().view(scale.shape), grown, scale)
    scale.copy_(torch.where(found, scale * backoff_factor, grown))
    growth_tracker.copy_(torch.where(found | due, torch.zeros_like(steps), steps))
    return scale
