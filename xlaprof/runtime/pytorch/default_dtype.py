"""``torch.set_default_dtype`` changes the operations recorded after it, although their calls look the same.

The default decides the dtype of Python floats and of tensors created without one, but is not part of an edge's key. So
each default has its own trie, and a trace during which it changes is marked. PyTorch has no hook for the change, so its
two setters are wrapped; programs call them rarely.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from xlaprof.runtime.tape import tapes


def install() -> None:
    """Wrap PyTorch's setters, so that they inform the tapes."""
    for name in ("set_default_dtype", "set_default_tensor_type"):
        setattr(torch, name, _informing(getattr(torch, name)))


def _informing(function: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(function)
    def setter(value: Any, /) -> None:
        before = torch.get_default_dtype()
        function(value)
        if torch.get_default_dtype() is before:  # as Dynamo does around each frame
            return
        for tape in tapes.existing():
            with tape.lock:
                tape.mark_default(torch.get_default_dtype())

    return setter
