"""Chunked ``linear_cross_entropy`` on ``xla``: with PyTorch's choices for the CPU.

PyTorch chooses by device type the dtypes in which it accumulates and keeps 16-bit floats. For a type it does not know
it takes the inputs' own dtype: a sum over the vocabulary with eight bits. XLA's programs multiply 16-bit floats into
float32 on every platform.
"""

from __future__ import annotations

import torch


def install() -> None:
    """Use the CPU's choices for ``xla``, where this PyTorch has the operator."""
    try:
        from torch.nn.modules import linear_cross_entropy_options as options
    except ImportError:
        return  # new in torch 2.13
    policies = options._AUTO_DEFAULTS
    policies.update({("xla", dtype): policy for (device, dtype), policy in list(policies.items()) if device == "cpu"})
    choose = options.LinearCrossEntropyOptions._resolve_auto_acc_dtype

    def with_xla(dtype: torch.dtype, device: torch.device | None) -> torch.dtype | None:
        return choose(dtype, torch.device("cpu") if device is not None and device.type == "xla" else device)

    options.LinearCrossEntropyOptions._resolve_auto_acc_dtype = staticmethod(with_xla)  # type: ignore[method-assign]
