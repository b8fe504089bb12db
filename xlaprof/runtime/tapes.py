"""The devices of this process: one tape for each."""

from __future__ import annotations

import os
import threading
from functools import cache

import jax
import torch

from .tape import Tape

_tapes: dict[int, Tape] = {}
_lock = threading.Lock()
_current = threading.local()


@cache
def devices() -> tuple[jax.Device, ...]:
    """jax's devices behind ``xla:0``, ``xla:1``...: those of ``PJRT_DEVICE`` (CPU, CUDA, TPU), by default the best.

    Raises ``RuntimeError`` naming the platforms there are when the one asked for is not among them.
    """
    wanted = os.environ.get("PJRT_DEVICE", "").strip().lower()
    if not wanted:
        return tuple(jax.local_devices())
    platform = {"gpu": "cuda"}.get(wanted, wanted)
    try:
        return tuple(jax.local_devices(backend=platform))
    except RuntimeError as error:
        here = jax.default_backend()
        raise RuntimeError(
            f"PJRT_DEVICE={os.environ['PJRT_DEVICE']} is not to be had here (jax has: {here}): "
            f"unset PJRT_DEVICE or install jax for it ({str(error).splitlines()[0]})"
        ) from error


def count() -> int:
    """Number of ``xla`` devices of this process."""
    return len(devices())


def tape(index: int | None = None) -> Tape:
    """The tape of ``xla:index``; of the current device by default."""
    if index is None:
        index = current()
    found = _tapes.get(index)
    if found is None:
        from xlaprof import recorder

        from . import observe

        with _lock:
            there = devices()
            if not 0 <= index < len(there):
                raise RuntimeError(
                    f"xla:{index} is no device: this process has {len(there)} (xla:0 to xla:{len(there) - 1})"
                )
            found = _tapes.get(index)
            if found is None:
                found = _tapes[index] = Tape(index, there[index])
        rec = recorder.active
        if rec is not None:
            observe.announce(rec, found)
    return found


def of_device(device: torch.device | str | None) -> Tape:
    """The tape of a ``torch.device``."""
    index = torch.device(device).index if device is not None else None
    return tape(index)


def current() -> int:
    """Index of this thread's current ``xla`` device."""
    return getattr(_current, "index", 0)


def set_current(index: int | torch.device) -> None:
    """Make ``xla:index`` this thread's current device."""
    given = index.index if isinstance(index, torch.device) else index
    _current.index = tape(0 if given is None else given).index


def existing() -> list[Tape]:
    """The tapes that are in use."""
    return list(_tapes.values())
