"""``torch_xla.amp.autocast_mode``."""

from __future__ import annotations

import warnings

import torch


class autocast(torch.amp.autocast_mode.autocast):
    """``torch.autocast("xla")``, the device named first: ``with autocast(torch_xla.device()): ...``.

    A ``dtype`` other than bfloat16 gives a warning and full precision, as in PyTorch/XLA. On CPU PyTorch/XLA always
    keeps full precision, with a message; here all devices behave like its accelerators.
    """

    def __init__(
        self,
        device: torch.device | str,
        enabled: bool = True,
        dtype: torch.dtype | None = None,
        cache_enabled: bool = True,
    ) -> None:
        if "xla" not in str(device):
            raise AssertionError("torch_xla.autocast is available for XLA:TPU, XLA:GPU")
        if dtype not in (None, torch.bfloat16):
            warnings.warn(
                f"autocast is disabled: torch_xla.amp.autocast lowers precision to bfloat16 only, not to {dtype}. "
                "torch.autocast('xla', dtype=...) takes others",
                stacklevel=2,
            )
            enabled = False
        super().__init__("xla", enabled=enabled, dtype=dtype or torch.bfloat16, cache_enabled=cache_enabled)
