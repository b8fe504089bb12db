"""Finds and replaces values in nested containers.

As in PyTorch/XLA, it searches lists, tuples (named ones too), sets, dictionaries and their subclasses, and the
attributes of other objects. Callables (functions, modules, classes) and everything else stay as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

Select = Callable[[Any], bool]


class DataWrapper:
    """Base class for the user's own containers of tensors."""

    def get_tensors(self) -> list[Any]:
        """The tensors in this object; ``None`` among them stays ``None``."""
        raise NotImplementedError("The method is missing an implementation")

    def from_tensors(self, tensors: list[Any]) -> Any:
        """A copy of this object with ``tensors`` in the place of those of :meth:`get_tensors`."""
        raise NotImplementedError("The method is missing an implementation")


def found(value: Any, select: Select) -> list[Any]:
    """The values in ``value`` for which ``select`` is true, each object once, in order."""
    selected: list[Any] = []

    def keep(item: Any) -> Any:
        selected.append(item)
        return item

    rewritten(value, select, keep)
    return selected


def rewritten(value: Any, select: Select, change: Callable[[Any], Any]) -> Any:
    """``value`` with each selected value replaced by ``change`` of it. Only containers that change are copied."""
    return _rewrite(value, select, change, {})


def converted(value: Any, select: Select, convert: Callable[[list[torch.Tensor]], list[torch.Tensor]]) -> Any:
    """``value`` with the selected tensors replaced: ``convert`` is called once, with the list of all of them."""
    old = tensors(value, select)
    if not old:
        return value
    new = {id(tensor): made for tensor, made in zip(old, convert(old), strict=True)}
    return rewritten(value, lambda item: id(item) in new and isinstance(item, torch.Tensor), lambda item: new[id(item)])


def tensors(value: Any, select: Select) -> list[torch.Tensor]:
    """The tensors in ``value`` for which ``select`` is true, each once, in order."""
    return found(value, lambda item: isinstance(item, torch.Tensor) and select(item))


def _rewrite(value: Any, select: Select, change: Callable[[Any], Any], seen: dict[int, Any]) -> Any:
    if id(value) in seen:  # shared, or a cycle
        return seen[id(value)]
    seen[id(value)] = value
    if select(value):
        seen[id(value)] = change(value)
    elif isinstance(value, dict):
        items = [(_rewrite(k, select, change, seen), _rewrite(v, select, change, seen)) for k, v in value.items()]
        if any(k is not a or v is not b for (k, v), (a, b) in zip(value.items(), items, strict=True)):
            seen[id(value)] = _dict_like(value, dict(items))
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = [_rewrite(v, select, change, seen) for v in value]
        if any(a is not b for a, b in zip(value, parts, strict=True)):
            named = isinstance(value, tuple) and hasattr(value, "_fields")
            seen[id(value)] = type(value)(*parts) if named else type(value)(parts)
    elif isinstance(value, DataWrapper):
        seen[id(value)] = value.from_tensors([_rewrite(v, select, change, seen) for v in value.get_tensors()])
    elif hasattr(value, "__dict__") and not callable(value) and not isinstance(value, torch.Tensor):
        before = vars(value)
        after = {name: _rewrite(v, select, change, seen) for name, v in before.items()}
        if any(after[name] is not v for name, v in before.items()):
            seen[id(value)] = changed = copy.copy(value)
            changed.__dict__.update(after)
    return seen[id(value)]


def _dict_like(value: dict[Any, Any], items: dict[Any, Any]) -> Any:
    """A copy of ``value``, with its type and attributes (a ``state_dict`` has some), and other items."""
    if type(value) is dict:
        return items
    changed = copy.copy(value)
    if list(changed) == list(items):
        for key, item in items.items():
            changed[key] = item
    else:
        changed.clear()
        changed.update(items)
    return changed
