"""What ``import torch_xla`` does to a process beside defining names."""

from __future__ import annotations

import os
from importlib.util import find_spec


def prepare() -> None:
    """Before the runtime is imported: choose the device, as PyTorch/XLA does, unless ``PJRT_DEVICE`` names it."""
    if os.environ.get("PJRT_SELECT_DEFAULT_DEVICE", "1") != "0":
        os.environ.setdefault("PJRT_DEVICE", best())


def best() -> str:
    """``TPU``, ``CUDA`` or ``CPU``, by what is installed and plugged in: to ask jax would start it."""
    if find_spec("libtpu") is not None and (os.path.exists("/dev/accel0") or os.path.exists("/dev/vfio/0")):
        return "TPU"
    if any(find_spec(f"jax_cuda{n}_plugin") for n in (13, 12)) and os.path.exists("/dev/nvidia0"):
        return "CUDA"
    return "CPU"


def finish() -> None:
    """After it: eager mode, where it is asked for from outside."""
    if os.environ.get("XLA_USE_EAGER_DEBUG_MODE", "0") == "1":
        from xlaprof.torch_xla.experimental import eager_mode

        eager_mode(True)
