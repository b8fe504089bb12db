"""``torch.set_default_dtype``: what is recorded after it is other operations, though they look the same.

What a Python float becomes, and the dtype of what is created without one, is no part of an edge's key. Each default has
a trie of its own where a walk begins with it; where it changes on the way, a mark on the walk tells. PyTorch tells
nobody, so its two functions are wrapped: they are called a few times in a program, operations are not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from xlaprof.runtime.tape import tapes


def install() -> None:
    """Have the tapes told."""
    for name in ("set_default_dtype", "set_default_tensor_type"):
        setattr(torch, name, _telling(getattr(torch, name)))


def _telling(function: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(function)
    def setter(value: Any, /) -> None:
        function(value)
        for tape in tapes.existing():
            with tape.lock:
                tape.mark_default(torch.get_default_dtype())

    return setter
