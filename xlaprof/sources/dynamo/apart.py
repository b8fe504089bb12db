"""Compile functions beside those that the program has compiled: what it had is as it was afterwards.

A copy of the function has code of its own, and so versions of its own. What it calls behind a graph break is shared:
versions of it that came meanwhile are taken away. So is what Dynamo learned of sizes that vary (its code state).
"""

from __future__ import annotations

import contextlib
import sys
from collections import defaultdict
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

from . import process
from .handler import compile_callbacks


def copied(function: Any) -> Any:
    """The function with code of its own; of a module, or another callable, a function that calls it."""
    function = getattr(function, "_torchdynamo_orig_callable", None) or getattr(function, "_orig_mod", function)
    if isinstance(function, MethodType):
        return MethodType(copied(function.__func__), function.__self__)
    if isinstance(function, FunctionType):
        made = FunctionType(
            function.__code__.replace(),
            function.__globals__,
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        made.__kwdefaults__, made.__qualname__ = function.__kwdefaults__, function.__qualname__
        return made
    forward = getattr(type(function), "forward", None)
    if isinstance(forward, FunctionType):
        return MethodType(copied(forward), function)
    call = vars(type(function)).get("__call__")
    if isinstance(call, FunctionType):
        return MethodType(copied(call), function)
    raise TypeError(f"{type(function).__name__} is no function, method or module")


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """What is compiled within is gone afterwards, and nothing else."""
    import torch._dynamo  # the callbacks and the state are its

    before: dict[CodeType, list[Any]] = {}
    callbacks = compile_callbacks()

    def started(_: Any) -> None:
        known = process.compiling()
        if known is not None:
            before.setdefault(known[0], list(_entries(known[0])))

    pgo: Any = sys.modules.get("torch._dynamo.pgo")
    learned = getattr(pgo, "_CODE_STATE", None)
    state = getattr(pgo, "CodeState", None)
    if state is not None:
        pgo._CODE_STATE = defaultdict(state)
    if callbacks is not None:
        callbacks.register_start_callback(started)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        if callbacks is not None:
            callbacks.remove_start_callback(started)
        if state is not None:
            pgo._CODE_STATE = learned
        for code, kept in before.items():
            _take_away(code, kept)


def _entries(code: CodeType) -> list[Any]:
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    found: list[Any] = _debug_get_cache_entry_list(code)
    return found


def _take_away(code: CodeType, kept: list[Any]) -> None:
    """All versions but those that are ``kept``."""
    from torch._C._dynamo.eval_frame import reset_code

    if not kept:
        reset_code(code)
        return
    from torch._dynamo.guards import DeletedGuardManagerWrapper

    ours = {str(entry.compile_id) for entry in kept}
    for entry in _entries(code):
        if str(entry.compile_id) not in ours:
            manager = entry.guard_manager
            manager.extra_state.invalidate(entry, DeletedGuardManagerWrapper("compiled by xlaprof.explain alone"))
