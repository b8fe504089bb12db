"""How ``linear_cross_entropy`` in chunks computes on ``xla``: as on the CPU, where PyTorch knows no such device.

It chooses by the type of the device what it adds up 16-bit floats in, and what it keeps in which dtype. For a type it
does not know that is the inputs' own dtype: eight bits of a sum over the vocabulary. XLA's programs multiply 16-bit
floats into float32 on every platform.
"""

from __future__ import annotations

import torch


def install() -> None:
    """Let the choices for ``xla`` be the CPU's, where this PyTorch has the operator."""
    try:
        from torch.nn.modules import linear_cross_entropy_options as options
    except ImportError:
        return  # it came with torch 2.13
    policies = options._AUTO_DEFAULTS
    policies.update({("xla", dtype): policy for (device, dtype), policy in list(policies.items()) if device == "cpu"})
    choose = options.LinearCrossEntropyOptions._resolve_auto_acc_dtype

    def with_xla(dtype: torch.dtype, device: torch.device | None) -> torch.dtype | None:
        return choose(dtype, torch.device("cpu") if device is not None and device.type == "xla" else device)

    options.LinearCrossEntropyOptions._resolve_auto_acc_dtype = staticmethod(with_xla)  # type: ignore[method-assign]
