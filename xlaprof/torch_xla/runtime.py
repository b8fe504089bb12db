"""``torch_xla.runtime``, customarily ``xr``: devices, processes, the compilation cache."""

from __future__ import annotations

import logging
import os
from typing import Any

import torch

import xlaprof.runtime as _runtime
from xlaprof.runtime import initialize_cache
from xlaprof.runtime.execution import program
from xlaprof.runtime.execution.kept.persistent import clear_computation_cache
from xlaprof.runtime.spmd.mesh import device_attributes
from xlaprof.runtime.tape import tapes
from xlaprof.torch_xla import _environment
from xlaprof.torch_xla._served import served
from xlaprof.torch_xla.core import xla_model

__getattr__, __dir__ = served(__name__)
__all__ = ["clear_computation_cache", "initialize_cache"]


def set_device_type(pjrt_device: str) -> None:
    """Choose ``"CPU"``, ``"CUDA"`` or ``"TPU"``, before a device is used. Raises ``RuntimeError`` afterwards."""
    from xlaprof.torch_xla import _XLAC  # heavy: all of SPMD

    if _XLAC._xla_runtime_is_initialized() and os.environ.get("PJRT_DEVICE") != pjrt_device:
        raise RuntimeError("Can't change device type after XLA runtime is initialized")
    os.environ["PJRT_DEVICE"] = pjrt_device
    tapes.devices.cache_clear()


def device_type() -> str | None:
    """``"CPU"``, ``"CUDA"`` or ``"TPU"``; ``None`` where none is chosen and PJRT_SELECT_DEFAULT_DEVICE=0."""
    named = os.environ.get("PJRT_DEVICE")
    if named:
        return named.split("_")[0]
    return None if os.environ.get("PJRT_SELECT_DEFAULT_DEVICE") == "0" else _runtime.device_type()


def using_pjrt() -> bool:
    """Is a device chosen? Without PJRT_DEVICE the best one is chosen, and logged."""
    if "PJRT_DEVICE" not in os.environ and os.environ.get("PJRT_SELECT_DEFAULT_DEVICE") != "0":
        chosen = _environment.best()
        logging.warning("Defaulting to PJRT_DEVICE=%s", chosen)
        os.environ["PJRT_DEVICE"] = chosen
    return device_type() is not None


def xla_device(n: int | None = None, devkind: str | None = None) -> torch.device:
    """``xm.xla_device``. Raises ``NotImplementedError`` where no device is chosen."""
    if not using_pjrt():
        raise NotImplementedError("no device is chosen: set PJRT_DEVICE, or unset PJRT_SELECT_DEFAULT_DEVICE")
    return xla_model.xla_device(n, devkind)


def is_bf16_supported() -> bool:
    """Can the device compute in bfloat16? All can."""
    return True


def runtime_device_attributes(device: str) -> dict[str, Any]:
    """jax's attributes of ``device`` (``"CPU:0"``, ``"TPU:3"``): its coordinates and cores."""
    return {known["name"]: known for known in global_runtime_device_attributes()}[device]


def global_runtime_device_attributes() -> list[dict[str, Any]]:
    """:func:`runtime_device_attributes` of all devices, each with its ``name``."""
    return device_attributes()


def get_num_cached_compilation_graph() -> int:
    """How many compiled programs are in memory."""
    return len(program.cache)
