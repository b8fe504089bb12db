"""The effects of ``import torch_xla`` on a process, besides defining names."""

from __future__ import annotations

import os
import warnings
from importlib.util import find_spec


def prepare() -> None:
    """Before the runtime is imported: choose the device, as PyTorch/XLA does, unless ``PJRT_DEVICE`` names it."""
    if os.environ.get("PJRT_SELECT_DEFAULT_DEVICE", "1") != "0":
        os.environ.setdefault("PJRT_DEVICE", best())


def best() -> str:
    """``TPU``, ``CUDA`` or ``CPU``, by what is installed and plugged in, without starting jax."""
    if find_spec("libtpu") is not None and (os.path.exists("/dev/accel0") or os.path.exists("/dev/vfio/0")):
        return "TPU"
    if any(find_spec(f"jax_cuda{n}_plugin") for n in (13, 12)) and os.path.exists("/dev/nvidia0"):
        return "CUDA"
    return "CPU"


#: variables that PyTorch/XLA 2.9 deprecates, and what to write instead
_OTHER_TYPES = {
    "XLA_USE_BF16": "model.to(torch.bfloat16)",
    "XLA_DOWNCAST_BF16": "model.to(torch.bfloat16)",
    "XLA_USE_32BIT_LONG": "tensors of torch.int32",
}


def finish() -> None:
    """After the runtime is imported: turn on eager mode if requested, and warn of variables without effect."""
    for name, instead in _OTHER_TYPES.items():
        if os.environ.get(name, "").lower() in ("1", "true", "on", "yes", "y"):
            warnings.warn(
                f"{name} has no effect: tensors on xla are of the dtypes they have. Use {instead}", stacklevel=2
            )
    if os.environ.get("XLA_USE_EAGER_DEBUG_MODE", "0") == "1":
        from xlaprof.runtime import eager_mode  # brings in torch and jax

        eager_mode(True)
