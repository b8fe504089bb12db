"""Operators outside ``aten`` (``torch.library``): which kernel runs for a tensor on ``xla``.

As on every device, it is the kernel registered for the device (``device_types="xla"``, key ``XLA``) or for all devices
(``custom_op`` without ``device_types``, key ``CompositeExplicitAutograd``); the operations it calls are recorded.
Without either, the CPU's kernel runs: a fallback, counted as ``library::op``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload

from xlaprof.runtime.trace.errors import final
from xlaprof.runtime.trace.ops import Op

from .types import Args, Handler, Kwargs

#: dispatch keys under which a kernel for the device may be registered
_KEYS = ("XLA", "CompositeExplicitAutograd")


def custom(op: Op, otherwise: Handler) -> Handler:
    """Handler of an operator outside ``aten``: its own kernel if it has one when called, else ``otherwise``."""

    def record(args: Args, kwargs: Kwargs) -> Any:
        for key in _KEYS:
            if has_kernel(op.func, key):
                return kernel(op.func, key)(args, kwargs)
        return otherwise(args, kwargs)

    return record


def kernel(func: OpOverload, key: str) -> Handler:
    """PyTorch's kernel of ``func`` for the dispatch key ``key``, as a handler; the operations it calls are recorded."""
    dispatch_key = getattr(torch._C.DispatchKey, key)
    return lambda args, kwargs: func._op_dk(dispatch_key, *args, **kwargs)


def no_kernel(op: Op) -> NotImplementedError:
    """The error for an operator that nothing computes."""
    name = op.func._schema.name
    return final(
        NotImplementedError(
            f"Could not run '{name}' on xla: it has no kernel there, and none for the CPU that could stand in. "
            f"Register one: torch.library.register_kernel({name!r}, 'xla')(fn) for a function of tensors on xla, or "
            "'cpu' for one of host tensors"
        )
    )


def has_kernel(func: OpOverload, *keys: str) -> bool:
    """Is a kernel of ``func`` registered under one of these dispatch keys?"""
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key) for key in keys)
