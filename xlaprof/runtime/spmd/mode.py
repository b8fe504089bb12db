"""The SPMD mode: one virtual device ``xla:0`` for all devices of the process."""

from __future__ import annotations

import os
import warnings

import jax

from xlaprof.runtime.execution import barrier, memory, upload
from xlaprof.runtime.tape import tapes
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.storage import NOWHERE

#: was ``XLA_USE_SPMD`` set here, or by the user?
_set_here = False


def use_spmd(auto: bool | None = False, force_tensors_on_spmd_device: bool = True) -> None:
    """Use one virtual device ``xla:0`` from now on, whose values are sharded over all devices of the process.

    Existing tensors move there, replicated, with a warning; with ``force_tensors_on_spmd_device=False`` they stay where
    they are. ``auto`` requests automatic sharding, which changes nothing: XLA always propagates annotations, and
    replicates values that they do not reach.
    """
    global _set_here
    if os.environ.get("XLA_USE_SPMD") is not None and not _set_here:
        warnings.warn(
            "XLA_USE_SPMD is being deprecated. Use torch_xla.runtime.use_spmd() without setting XLA_USE_SPMD env-var.",
            stacklevel=2,
        )
    before = tapes.existing()
    for tape in before if not tapes.together() else []:
        barrier.barrier(tape, "use_spmd")
    old = tapes.switch(True)
    upload.forget()  # packed numbers on one device
    if old and force_tensors_on_spmd_device:
        moved = sum(_adopt(tape, tapes.tape(0)) for tape in old.values())
        if moved:
            warnings.warn(
                "Replicating tensors already initialized on non-virtual XLA device for SPMD to force SPMD mode. This "
                "is one-time overhead to setup, and to minimize such, please set SPMD mode before initializting "
                "tensors (i.e., call use_spmd() in the beginning of the program).",
                stacklevel=2,
            )
    os.environ["XLA_USE_SPMD"] = "1"
    if auto:
        os.environ["XLA_AUTO_SPMD"] = "1"
    _set_here = True


def disable_spmd() -> None:
    """Use one ``xla`` device for each device again. Tensors of the virtual device stay there, apart from others."""
    global _set_here
    for tape in tapes.existing() if tapes.together() else []:
        barrier.barrier(tape, "disable_spmd")
    tapes.switch(False)
    upload.forget()
    os.environ.pop("XLA_USE_SPMD", None)
    os.environ.pop("XLA_AUTO_SPMD", None)
    _set_here = False


def is_spmd() -> bool:
    """Is the mode on? As in PyTorch/XLA ``XLA_USE_SPMD`` decides, which :func:`use_spmd` sets."""
    return tapes.asked_for_spmd()


def is_auto_spmd() -> bool:
    """Was automatic sharding requested?"""
    return os.environ.get("XLA_AUTO_SPMD", "0") in ("1", "true", "True")


def _adopt(old: Tape, new: Tape) -> int:
    """Move the live storages of ``old`` to ``new``; return their number."""
    storages = memory.storages(old)
    for storage in storages:
        storage.tape = new
        for weak in storage.views or ():
            if (view := weak()) is not None:
                view.tape, view.epoch = new, NOWHERE
        if isinstance(storage.array, jax.Array):
            assert new.partition is not None
            new.partition.on_devices(storage)
    return len(storages)


def global_runtime_device_count() -> int:
    """How many devices all processes have together: those of a mesh."""
    return len(tapes.all_devices())


def addressable_runtime_device_count() -> int:
    """How many devices this process has."""
    return len(tapes.devices())


def require_spmd() -> None:
    """Raise ``RuntimeError`` unless the mode is on."""
    if not tapes.together():
        raise RuntimeError("Please enable SPMD via `torch_xla.runtime.use_spmd()`")
