"""Modules that move to ``xla`` and back: tied parameters stay tied, optimizers made before follow.

Between other devices, ``Module.to`` gives each parameter new data and keeps the object. Between the host and ``xla`` it
cannot (their tensor implementations differ), so PyTorch makes a new ``Parameter`` for each attribute that holds one: a
weight that an embedding and a head share would become two, and an optimizer made before would train the old ones.
Neither raises an error: the losses are just wrong. PyTorch has no hook for this, so ``Module._apply`` is wrapped.
"""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from xlaprof.runtime.trace.tensor import XLATensor

from . import lazy

#: a replaced parameter that is still alive -> the one that replaced it in its module
_successors = WeakTensorKeyDictionary()


class _Move(threading.local):
    """The move under way on this thread: id of a parameter -> (the parameter, its successor)."""

    made: dict[int, tuple[torch.Tensor, torch.Tensor]] | None = None


_move = _Move()

#: the optimizers alive that hold parameters
_optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
#: whether those made before :func:`install` are among them: a search through all objects, when one may be needed
_searched = False
_apply_once: Any = torch.nn.Module._apply
_add_once: Any = torch.optim.Optimizer.add_param_group
_set_state_once: Any = torch.optim.Optimizer.__setstate__


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
        moved, _move.made = bool(_move.made), None
        if moved and len(_successors) > 0:  # replaced parameters that died are not in it
            _move_optimizers()


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


def _move_optimizers() -> None:
    """Make the optimizers made before a move train the parameters that replaced theirs.

    Not by a hook before each step: one for all optimizers cuts the graph of every compiled step, on any device.
    """
    global _searched
    if not _searched:
        _searched = True
        _optimizers.update(one for one in gc.get_objects() if issubclass(type(one), torch.optim.Optimizer))
    for optimizer in list(_optimizers):
        _follow(optimizer)


def _follow(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        for i, old in enumerate(group["params"]):
            new = _latest(old)
            if new is not old:
                group["params"][i] = new
                if old in optimizer.state:
                    optimizer.state[new] = optimizer.state.pop(old)


def _add_param_group(self: torch.optim.Optimizer, param_group: dict[str, Any]) -> None:
    """A list of parameters may be older than the module's move, and the optimizer younger."""
    _add_once(self, param_group)
    _optimizers.add(self)
    _follow(self)


def _set_state(self: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    _set_state_once(self, state)  # a copy, or one that was read from a file
    _optimizers.add(self)


def _latest(parameter: torch.Tensor) -> torch.Tensor:
    while (successor := _successors.get(parameter)) is not None:
        parameter = successor
    return parameter


def install() -> None:
    """Wrap ``Module._apply`` and what gives an optimizer its parameters, once."""
    if torch.nn.Module._apply is _apply_once:
        torch.nn.Module._apply = _apply  # type: ignore[method-assign]
        torch.optim.Optimizer.add_param_group = _add_param_group  # type: ignore[method-assign]
        torch.optim.Optimizer.__setstate__ = _set_state  # type: ignore[method-assign]
        lazy.install()
