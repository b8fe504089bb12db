"""The program's own names for tensors and numbers: a parameter's path, the optimizer's ``lr``, a global variable.

Used only when a graph was compiled.
"""

from __future__ import annotations

import sys
from inspect import CO_OPTIMIZED
from itertools import islice
from os import path
from typing import TYPE_CHECKING, Any

import torch

from xlaprof.recording.stacks import shown_file

from . import source
from .storage import Storage, base_of
from .tensor import XLATensor

if TYPE_CHECKING:
    import weakref
    from collections.abc import Iterable, Iterator
    from types import FrameType

    from xlaprof.recording.stacks import RawFrame

_OPTIM = path.dirname(torch.optim.__file__)
_DEPTH = 60
_PARAMETERS = 20_000
_GROUPS = 8
_MODULES = 256  # of a variable, whose attributes are looked at
_NONE = type(None)
#: functions that give a program its locals: then CPython's snapshot of them is the program's
GIVE_LOCALS = frozenset({"locals", "vars", "dir", "eval", "exec"})


def hyperparameters() -> tuple[tuple[str, float], ...]:
    """Numbers of the optimizer whose step is being recorded: its groups' ``lr``, ``momentum``..."""
    for frame in source.outward(sys._getframe(1), _DEPTH):
        if frame.f_code.co_filename.startswith(_OPTIM):
            owner = frame.f_locals.get("self")  # locals of a library's function may be read: it ends before any barrier
            if isinstance(owner, torch.optim.Optimizer):
                groups = owner.param_groups[:_GROUPS]
                found = {
                    (name, float(value))
                    for group in groups
                    for name, value in group.items()
                    if type(value) in (int, float)
                }
                return tuple(sorted(found))
    return ()


def variable(line: RawFrame, names: Iterable[str], value: Any) -> str:
    """The one of ``names`` that equals the number ``value``: a local of the line's running function, or a global."""
    for frame in source.outward(sys._getframe(1)):
        if shown_file(frame) == line.file:
            known = frame.f_globals | (_numbers(frame) if frame.f_code.co_qualname == line.func else {})
            found = [name for name in names if type(known.get(name)) is type(value) and known[name] == value]
            if len(found) == 1:
                return found[0]
    return ""


def settings() -> dict[tuple[str, str], dict[str, str]]:
    """By file and function, of the user's that run now: its variables that are numbers, texts or None, as text.

    A tensor is "a tensor". Globals are those of the function "<module>". A module's attributes are "model.drop.p", and
    those of the object whose method it is "self.rate".
    """
    found: dict[tuple[str, str], dict[str, str]] = {}
    for frame in source.outward(sys._getframe(1), _DEPTH):
        file = shown_file(frame)
        if file:
            found.setdefault((file, "<module>"), _settings(frame.f_globals))
            if _has_own_locals(frame):
                known = frame.f_locals
                found.setdefault((file, frame.f_code.co_qualname), _settings(known))
                if type(known) is dict:  # see _numbers
                    known.clear()
    return found


def _settings(known: dict[str, Any]) -> dict[str, str]:
    settings = _plain(known)
    for name, value in known.items():
        if isinstance(value, torch.Tensor):
            settings[name] = "a tensor"
        elif isinstance(value, torch.nn.Module):
            for path, module in islice(value.named_modules(), _MODULES):
                settings |= _plain(vars(module), f"{name}.{path}." if path else f"{name}.")
        elif name == "self" and hasattr(value, "__dict__"):
            settings |= _plain(vars(value), "self.")
    return settings


def _plain(known: dict[str, Any], of: str = "") -> dict[str, str]:
    """Numbers, texts and None, without what every module has."""
    return {
        of + name: repr(value)
        for name, value in known.items()
        if type(value) in (bool, int, float, str, _NONE) and not (of and (name[0] == "_" or name == "training"))
    }


def _numbers(frame: FrameType) -> dict[str, Any]:
    """Locals of a running function that are numbers. Tensors are let go: held longer, they make another graph."""
    if not _has_own_locals(frame):
        return {}
    known = frame.f_locals
    numbers = {name: value for name, value in known.items() if type(value) in (int, float)}
    if type(known) is dict:  # before Python 3.13, the frame keeps what was read from it
        known.clear()
    return numbers


def _has_own_locals(frame: FrameType) -> bool:
    """Whether it is a function, and what reads its locals may let go of them: the program holds no dict of these."""
    return bool(frame.f_code.co_flags & CO_OPTIMIZED) and GIVE_LOCALS.isdisjoint(frame.f_code.co_names)


def parameter(storage: Storage) -> str:
    """``model.layers.0.weight``, if the storage is that of a parameter, buffer or gradient of a known module."""
    base = base_of(storage)
    for ref in list(source.roots.values()):
        root = ref()
        if root is None:
            continue
        for name, tensor in _tensors(root):
            if _is(tensor, base):
                return f"{_variable(root)}.{name}"
            if tensor.is_leaf and _is(tensor.grad, base):
                return f"{_variable(root)}.{name}.grad"
    return ""


def models(storages: Iterable[Storage]) -> list[weakref.ref[torch.nn.Module] | None]:
    """The known module that each storage is a parameter or buffer of; of several the one that was called first."""
    held: dict[int, weakref.ref[torch.nn.Module]] = {}
    for ref in list(source.roots.values()):
        root = ref()
        for _, tensor in _tensors(root) if root is not None else ():
            if isinstance(tensor, XLATensor):
                held.setdefault(id(base_of(tensor._storage)), ref)
    return [held.get(id(base_of(one))) for one in storages]


def _tensors(root: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    left = _PARAMETERS
    todo: list[tuple[str, torch.nn.Module]] = [("", root)]
    seen: set[int] = set()
    while todo and left:
        prefix, module = todo.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            left -= 1
            if tensor is not None:
                yield prefix + name, tensor
        todo += [(f"{prefix}{name}.", child) for name, child in module._modules.items() if child is not None]


def _is(tensor: Any, storage: Storage) -> bool:
    return isinstance(tensor, XLATensor) and base_of(tensor._storage) is storage


def _variable(value: Any) -> str:
    """The global of the running program that is ``value``, or the name of its class."""
    seen: set[int] = set()
    for frame in source.outward(sys._getframe(1)):
        names = frame.f_globals
        if id(names) not in seen and not str(names.get("__name__", "")).startswith(("xlaprof", "torch")):
            seen.add(id(names))
            for name, one in list(names.items()):
                if one is value:
                    return name
    return type(value).__name__
