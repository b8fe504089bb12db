"""Refuse the device in a process that was forked after its parent had used it.

XLA's threads stay in the parent, so a computation in the child could wait for ever. Using the device there raises an
error, as PyTorch's CUDA does. Children of a parent that never used the device are not affected, nor are a data loader's
workers, which hold host tensors.
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
        # jax warns at every fork of a danger from which the child is protected here
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
