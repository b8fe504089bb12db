"""Calls that a library passes on to ``jax.jit`` in another form: as the program wrote them."""

from __future__ import annotations

import inspect
import os
from types import SimpleNamespace
from typing import Any

from .internals import Miss

_EQUINOX = os.path.join("equinox", "_jit.py")


def opened(miss: Miss) -> Miss:
    """The call of the program's own function. Where a library has it otherwise, the call that JAX was given."""
    code = getattr(miss.fun, "__code__", None)
    if code is not None and code.co_filename.endswith(_EQUINOX) and len(miss.args) == 3:
        try:
            return _filter_jit(miss)
        except (TypeError, ValueError, KeyError, AttributeError):
            return miss
    return miss


def _filter_jit(miss: Miss) -> Miss:
    """``equinox.filter_jit`` divides function and arguments into arrays and what is static, which is all else."""
    donated, kept, static = miss.args
    dynamic = {**donated, **kept}
    fun, first, (rest, kwargs) = (
        treedef.unflatten([theirs if fixed is None else fixed for theirs, fixed in zip(arrays, leaves, strict=True)])
        for arrays, (leaves, treedef) in zip((dynamic["fun"], dynamic["first"], dynamic["rest"]), static, strict=True)
    )
    args: tuple[Any, ...] = (first, *rest)[:-1]  # the last stands for no argument
    options = SimpleNamespace(
        fun_signature=inspect.signature(fun),
        donate_argnums=tuple(sorted(donated)),
        static_leaves=True,
    )
    return miss._replace(fun=fun, args=args, kwargs=kwargs, options=options)
