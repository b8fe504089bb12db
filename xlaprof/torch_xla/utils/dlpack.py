"""``torch_xla.utils.dlpack``: arrays to and from other libraries."""

from __future__ import annotations

from typing import Any

import jax
import torch

from xlaprof.runtime import from_jax, to_jax
from xlaprof.runtime.tape import tapes


def to_dlpack(xla_tensor: torch.Tensor) -> Any:
    """A DLPack capsule of the tensor's value, computed first where it is pending."""
    return to_jax(xla_tensor).__dlpack__()


def from_dlpack(ext_tensor: Any) -> torch.Tensor:
    """A tensor on the current ``xla`` device with the value of a capsule, or of an object with ``__dlpack__``.

    Raises ``RuntimeError`` for a capsule that was consumed before.
    """
    if hasattr(ext_tensor, "__dlpack__"):
        with jax.enable_x64(True):
            return from_jax(jax.device_put(jax.dlpack.from_dlpack(ext_tensor), tapes.tape().device))
    return torch.utils.dlpack.from_dlpack(ext_tensor).to(tapes.tape().torch_device)
