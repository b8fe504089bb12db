"""A process that forks after it used the device: in the child the device is not there.

XLA's threads stay in the parent, so a computation in the child could wait for ever. The child is told so, as PyTorch
tells it for CUDA; a child of a parent that never used the device, and a data loader's workers, which hold host tensors,
go on as they are.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

from xlaprof.runtime.tape import tapes
from xlaprof.runtime.trace.tensor import XLATensor

_in_child = False


def in_child() -> bool:
    """Was this process forked from one that had used the device?"""
    return _in_child


def _after_in_child() -> None:
    global _in_child
    if tapes.existing():
        _in_child = True
        XLATensor.__torch_dispatch__ = staticmethod(_refuse)
        tapes.close(_error)


def _refuse(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    raise _error()


def _error() -> RuntimeError:
    return RuntimeError(
        "Cannot use xla in a forked subprocess: the threads of the device stayed in the parent. To use xla with "
        "multiprocessing, you must use the 'spawn' start method: multiprocessing.set_start_method('spawn')"
    )


def install() -> None:
    """Watch for forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_in_child)
        # jax's, at every fork of the process: what it warns of is what the child is refused
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
