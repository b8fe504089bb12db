"""The embedded LazyTensor runtime: ``torch.device("xla")`` in pure Python over jaxlib.

Importing this module makes the device work::

    import torch, xlaprof.runtime as xr

    model = Model().to("xla")
    for x, y in batches:
        loss = loss_fn(model(x.to("xla")), y.to("xla"))   # recorded, not run
        loss.backward()
        optimizer.step()
        xr.sync()                                          # the barrier: compiled once, run

Operations are recorded lazily and run at a barrier (:func:`sync`) or when a value is read.
"""

from __future__ import annotations

import os as _os

import torch

from . import device_guard as _device_guard

_device_guard.install()

from . import autograd, metrics, observe, randomness, special, torch_module  # noqa: E402
from . import execute as _execute  # noqa: E402
from . import tapes as _tapes  # noqa: E402
from .execute import initialize_cache  # noqa: E402
from .program import cache as _cache  # noqa: E402
from .randomness import get_rng_state, manual_seed, set_rng_state  # noqa: E402
from .tensor import XLATensor  # noqa: E402

if _os.environ.get("XLA_PERSISTENT_CACHE_PATH"):  # PyTorch/XLA's variable
    initialize_cache(_os.environ["XLA_PERSISTENT_CACHE_PATH"])
special.install()
autograd.install()
torch_module.install()
randomness.follow_torch_seed()
observe.install()

__all__ = [
    "XLATensor",
    "clear_compile_cache",
    "device",
    "device_count",
    "device_type",
    "get_rng_state",
    "initialize_cache",
    "manual_seed",
    "mark_step",
    "metrics",
    "set_rng_state",
    "sync",
    "wait_device_ops",
]


def device(index: int | None = None) -> torch.device:
    """The device ``xla:index``; the current one by default."""
    return _tapes.tape(index).torch_device


def device_count() -> int:
    """Number of ``xla`` devices of this process."""
    return _tapes.count()


def device_type() -> str:
    """What is behind the ``xla`` device: ``"CPU"``, ``"CUDA"`` or ``"TPU"``, as ``PJRT_DEVICE`` has it."""
    platform = str(_tapes.devices()[0].platform).upper()
    return {"GPU": "CUDA"}.get(platform, platform)


def sync(wait: bool = False) -> None:
    """The barrier: run what live tensors need, on every device in use, and begin a new graph.

    Returns once the work is handed over; with ``wait=True``, once it is done. Raises what XLA raised if the graph
    cannot be compiled.
    """
    for tape in _tapes.existing() or [_tapes.tape()]:
        _execute.barrier(tape, "sync", wait=wait)


def mark_step(wait: bool = False) -> None:
    """:func:`sync` under the name older PyTorch/XLA scripts use."""
    for tape in _tapes.existing() or [_tapes.tape()]:
        _execute.barrier(tape, "mark_step", wait=wait)


def wait_device_ops() -> None:
    """Return when the devices have finished what was handed to them. Nothing new is run."""
    _execute.wait_for()


def clear_compile_cache() -> None:
    """Forget all compiled programs of this process; the next barriers compile again."""
    _cache.clear()
