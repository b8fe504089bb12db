"""``torch_xla.amp.autocast_mode``."""

from __future__ import annotations

import torch


class autocast(torch.amp.autocast_mode.autocast):
    """``torch.autocast("xla")``, the device named first: ``with autocast(torch_xla.device()): ...``.

    PyTorch/XLA leaves the region in full precision on CPU, with a message; here it does on every device what it would
    do on an accelerator.
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
        super().__init__("xla", enabled=enabled, dtype=dtype or torch.bfloat16, cache_enabled=cache_enabled)
