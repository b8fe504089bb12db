"""In what ``linear_cross_entropy`` in chunks adds up 16-bit floats on ``xla``: in float32, as on the CPU and on CUDA.

PyTorch chooses by the type of the device, and for one it does not know the inputs' own dtype: eight bits of a sum over
the vocabulary. XLA's programs multiply 16-bit floats into float32 on every platform.
"""

from __future__ import annotations

import torch


def install() -> None:
    """Let the choice for ``xla`` be the CPU's, where this PyTorch has the operator."""
    try:
        from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions as Options
    except ImportError:
        return  # it came with torch 2.13
    choose = getattr(Options, "_resolve_auto_acc_dtype", None)
    if choose is None:
        return

    def with_xla(dtype: torch.dtype, device: torch.device | None) -> torch.dtype | None:
        known = torch.device("cpu") if device is not None and device.type == "xla" else device
        return choose(dtype, known)  # type: ignore[no-any-return]

    Options._resolve_auto_acc_dtype = staticmethod(with_xla)  # type: ignore[method-assign]
