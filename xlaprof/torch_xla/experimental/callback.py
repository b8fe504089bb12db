"""``torch_xla.experimental.callback``: a callback once a tensor's value is computed, without waiting for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import jax
import torch

from xlaprof.runtime.trace.storage import Failed, View
from xlaprof.runtime.trace.tensor import XLATensor
from xlaprof.torch_xla import _graphs


def on_ready_event(tensor: torch.Tensor) -> threading.Event:
    """An event that is set once the device has computed the tensor's value; raises as :func:`on_ready_callback`."""
    event = threading.Event()
    on_ready_callback(tensor, lambda _: event.set())
    return event


def on_ready_callback(tensor: torch.Tensor, callback: Callable[[torch.Tensor], None]) -> None:
    """Call ``callback(tensor)`` on another thread, once the device has computed the tensor's value.

    Raises ``RuntimeError`` for a tensor that is not on ``xla`` or still pending. Where the execution fails, its error
    goes to ``threading.excepthook`` and ``callback`` is not called.
    """
    if not isinstance(tensor, XLATensor):
        raise RuntimeError(f"on_ready_callback takes a tensor on xla, got one on {tensor.device}")
    storage = tensor._storage
    if isinstance(storage, View) and storage.array is None:
        storage = storage.base
    array = storage.array
    if _graphs.is_pending(storage) or array is None:
        raise RuntimeError("nothing computes the tensor yet, it would never be ready: call torch_xla.sync() first")
    if isinstance(array, Failed):
        raise array.kind(array.text)

    def wait() -> None:
        jax.block_until_ready(array)
        callback(tensor)

    threading.Thread(target=wait, name="xlaprof-on-ready").start()
