"""Modules that move to ``xla`` and back: tied parameters stay tied, optimizers made before follow.

Between other devices, ``Module.to`` gives each parameter new data and keeps the object. Between the host and ``xla`` it
cannot (their tensor implementations differ), so PyTorch makes a new ``Parameter`` for each attribute that holds one: a
weight that an embedding and a head share would become two, and an optimizer made before would train the old ones.
Neither raises an error: the losses are just wrong. PyTorch has no hook for this, so ``Module._apply`` is wrapped.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakTensorKeyDictionary

from xlaprof.runtime.trace.tensor import XLATensor

from . import lazy

#: a replaced parameter that is still alive -> the one that replaced it in its module
_successors = WeakTensorKeyDictionary()


class _Move(threading.local):
    """The move under way on this thread: id of a parameter -> (the parameter, its successor)."""

    made: dict[int, tuple[torch.Tensor, torch.Tensor]] | None = None


_move = _Move()

#: :func:`_follow`'s, only while there is anything to follow: a hook of all optimizers breaks the graph of every
#: compiled step, on any device
_hook: RemovableHandle | None = None
_apply_once: Any = torch.nn.Module._apply


def _apply(self: torch.nn.Module, fn: Any, recurse: bool = True) -> torch.nn.Module:
    if lazy.is_uninitialized(self, fn):
        if recurse:
            for child in self.children():
                child._apply(fn)
        lazy.move_later(self, fn)
        return self
    if _move.made is not None:
        return _apply_tied(self, fn, recurse, _move.made)
    _move.made = {}
    try:
        return _apply_tied(self, fn, recurse, _move.made)
    finally:
        _move.made = None
        _watch_optimizers()


def _apply_tied(
    self: torch.nn.Module, fn: Any, recurse: bool, made: dict[int, tuple[torch.Tensor, torch.Tensor]]
) -> torch.nn.Module:
    before = dict(self._parameters)
    _apply_once(self, fn, recurse)
    for name, old in before.items():
        new = self._parameters[name]
        if new is old or old is None or new is None or not any(isinstance(p, XLATensor) for p in (old, new)):
            continue
        if id(old) in made:
            self._parameters[name] = made[id(old)][1]  # type: ignore[assignment]
            continue
        new.__dict__.update({k: v for k, v in old.__dict__.items() if k != "_is_param"})
        made[id(old)] = old, new
        _successors[old] = new
    return self


def _watch_optimizers() -> None:
    """Call :func:`_follow` before each step from now on, if a replaced parameter is still alive.

    Called when modules have moved: a hook cannot remove itself while it runs.
    """
    global _hook
    wanted = len(_successors) > 0  # replaced parameters that died are not in it
    if wanted and _hook is None:
        _hook = register_optimizer_step_pre_hook(_follow)
    elif not wanted and _hook is not None:
        _hook.remove()
        _hook = None


def _follow(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """Before a step: make the optimizer train the parameters that replaced its own."""
    for group in optimizer.param_groups:
        for i, old in enumerate(group["params"]):
            new = _latest(old)
            if new is not old:
                group["params"][i] = new
                if old in optimizer.state:
                    optimizer.state[new] = optimizer.state.pop(old)


def _latest(parameter: torch.Tensor) -> torch.Tensor:
    while (successor := _successors.get(parameter)) is not None:
        parameter = successor
    return parameter


def install() -> None:
    """Wrap ``Module._apply``, once."""
    if torch.nn.Module._apply is _apply_once:
        torch.nn.Module._apply = _apply  # type: ignore[method-assign]
        lazy.install()
