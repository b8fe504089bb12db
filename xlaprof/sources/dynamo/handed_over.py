"""Guards of what follows a graph break, in the function's own terms: its names, and what the break made.

Dynamo compiles what follows a break as a function of its own, whose arguments are the variables still in use and what
lay on Python's stack (``___stack0``).
"""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

from .guards import LEFT_BEHIND, Guard, subject
from .process import LITERALS, Missed, is_module, is_tensor, show

#: guards on a size: it may be the break's, wherever in what it hands over the tensor is; and on a value itself
_SIZES, _VALUES = ("shape", "size bound", "stride"), ("value", "length", "type", "object", "freed")
_MEMBERS = 1_000  # looked through, for the name of an object


def _local(source: str) -> str:
    return re.sub(r"\bL\['(\w+)'\]", r"\1", source)


def in_the_functions_terms(guard: Guard, now: Missed) -> Guard:
    """A guard of what follows a graph break, with the function's own names; and whether the break made its value.

    What was an argument, or can be reached from one, is there without the break. An attribute is its object's.
    """
    if now.given is None:
        return guard
    source = re.sub(r"'[^']*'", "", _local(guard.source or guard.text))
    roots = [name for name in re.findall(r"(?<![.\w])[A-Za-z_]\w*", source) if name in now.locals]
    if not roots:
        return guard
    made = not _reached(roots[0], now.locals[roots[0]], now)
    handed = made and (guard.kind in _SIZES or (guard.kind in _VALUES and f"{roots[0]}." not in source))
    name, text = guard.subject, guard.text
    for root in filter(LEFT_BEHIND.fullmatch, roots):
        called = _called(root, now)
        name = name.replace(subject(root), called) if guard.source != root else called
        text = re.sub(rf"\b{root}\b", called if called.replace(".", "_").isidentifier() else "value", text)
    return guard._replace(subject=name.replace(".__self__", ""), text=text, handed=handed)


def _called(root: str, now: Missed) -> str:
    """What a value on Python's stack is to the user: ``self.head``, ``self.seen.append``, "the tensor made here"."""
    value = now.locals[root]
    if name := _reached(root, value, now):
        return name
    owner = getattr(value, "__self__", None)
    if owner is not None and not isinstance(owner, ModuleType):
        return f"{_reached('', owner, now) or type(owner).__name__}.{value.__name__}"
    if is_tensor(value):
        return "the tensor that was made"
    return subject(root) if isinstance(value, LITERALS) else show(value)


def _reached(name: str, value: Any, now: Missed) -> str:
    """The name of a value that is there without the break: of the argument that it is, or belongs to; "": of none."""
    given = now.given or {}
    if isinstance(value, LITERALS):  # equal ones are one object
        same = name in given and type(given[name]) is type(value) and given[name] == value
        return name if same else ""
    globals_ = now.scope.get("G")
    found = list(given.items())
    for path, one in found:
        if one is value:
            return path
        if len(found) < _MEMBERS:
            found += _members(path, one)
    named = globals_.items() if isinstance(globals_, dict) else ()
    return next((path for path, one in named if one is value and not LEFT_BEHIND.match(path)), "")


def _members(path: str, one: Any) -> list[tuple[str, Any]]:
    """The parts of an object, with the names under which a program reaches them."""
    if isinstance(one, dict):
        return [(f"{path}[{key!r}]", part) for key, part in list(one.items())[:_MEMBERS]]
    if isinstance(one, list | tuple):
        return [(f"{path}[{i}]", part) for i, part in enumerate(one[:_MEMBERS])]
    held = getattr(one, "__dict__", None)
    if not isinstance(held, dict) or isinstance(one, ModuleType | type):
        return []
    parts = dict(held)
    if is_module(one):
        for kind in ("_parameters", "_buffers", "_modules"):
            parts |= parts.pop(kind, {})
    return [(f"{path}[{key}]" if key.isdigit() else f"{path}.{key}", part) for key, part in parts.items()]
