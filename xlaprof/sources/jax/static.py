"""What is part of a program's key and is no array: static arguments, and what a pytree has besides its leaves.

Each is taken apart into named parts (``kernel.step_size``, ``state.tx.init``, ``model.smoothing``), with a text for
people and, where an object is equal to itself alone, with its identity: two functions of one name are two programs.
What arrays hold is never looked at, and no object is kept alive.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import CellType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from xlaprof.recording.stacks import shown_file
from xlaprof.text.strings import clip

_SHOWN = 60  # characters of a value
_DEEPEST = 8  # parts within parts
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))
_BY_IDENTITY: tuple[Any, ...] = (object.__eq__, type.__eq__)

Part = tuple[str, "Fixed"]  # its path, and what it is


class Same:
    """An object, which is not kept alive for it: equal where both are that object still."""

    __slots__ = ("_at",)

    def __init__(self, value: object) -> None:
        try:
            self._at: Callable[[], object] = ref(value)
        except TypeError:  # it cannot be referred to weakly
            at = id(value)
            self._at = lambda: at

    def __eq__(self, other: object) -> bool:
        mine = self._at()
        theirs = other._at() if isinstance(other, Same) else None
        return mine is not None and (mine is theirs or (isinstance(mine, int) and mine == theirs))

    def __hash__(self) -> int:
        return 0


class Fixed(NamedTuple):
    """A value for people, and what identifies it beyond that: None, a hash, or objects."""

    text: str
    same: int | tuple[Same, ...] | None = None
    code: int = 0  # of a function, a digest of what it does: two lambdas have one name


def parts(path: str, value: Any) -> list[Part]:
    """The named parts of a static value: one, where it is a number, a text, a function."""
    try:
        return list(_parts(path, value, _DEEPEST))
    except Exception:  # attributes of the program's objects may do anything: of such a one the type is told
        return [(path, Fixed(_named(type(value)), (Same(value),)))]


def held(function: Any, deep: int = 2) -> Iterator[Part]:
    """What the closure of a function holds that tells two objects of the same code apart: numbers and texts, functions
    with what theirs hold, and tuples of these with names, as an optimizer is. What else it holds may be large, and is
    not looked at."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        try:
            value = cell.cell_contents
        except ValueError:  # nothing is assigned yet
            continue
        fields = [(f"{name}.{field}", getattr(value, field)) for field in getattr(value, "_fields", ())[:_DEEPEST]]
        for path, one in fields or [(name, value)]:
            if type(one) in _PLAIN or isinstance(one, FunctionType | MethodType):
                yield from parts(path, one)
            if deep > 1 and path == name and isinstance(one, FunctionType):
                yield from ((f"{name}.{inner}", what) for inner, what in held(one, deep - 1))


def handed() -> Iterator[Part]:
    """The closures that the program's function that runs was called with: what it makes of them is as new as they are.
    Of the data that one closes over its name is told, ``objective(state, goal)``: it would be arguments."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not shown_file(frame):
        frame = frame.f_back
    if frame is None:
        return
    code = frame.f_code
    for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        value = frame.f_locals.get(name)
        if isinstance(value, FunctionType) and value.__closure__:
            cells = zip(value.__code__.co_freevars, value.__closure__, strict=True)
            data = (of for of, cell in cells if of != "self" and not callable(_content(cell)))
            yield f"{name}({', '.join(data)})", Fixed(value.__qualname__, (Same(value),), hash(value.__code__))


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is assigned yet
        return None


def _parts(path: str, value: Any, deep: int) -> Iterator[Part]:
    kind = type(value)
    if isinstance(value, enum.Enum):
        yield path, Fixed(f"{kind.__name__}.{value.name}")
    elif kind in _PLAIN or isinstance(value, np.generic):
        text = repr(value)
        yield path, Fixed(clip(text, _SHOWN), hash(text) if len(text) > _SHOWN else None)
    elif (whole := _whole(value)) is not None:
        yield path, whole
    elif not deep:
        yield path, Fixed(kind.__name__, _hashed(value))
    else:
        inner = list(_inner(value))
        if not inner or not isinstance(value, tuple | list | Mapping):
            yield path, Fixed(_named(kind), None if inner else _hashed(value))
        for name, one in inner:
            yield from _parts(f"{path}{name}", one, deep - 1)


def _whole(value: Any) -> Fixed | None:
    """What has no parts: it is a set, an array, or equal to itself alone. None: it is compared by its parts."""
    owner = getattr(value, "__self__", None)
    if isinstance(value, set | frozenset):
        return Fixed(
            clip(f"{{{', '.join(sorted(_shown(one) for one in islice(value, _SHOWN)))}}}", _SHOWN), _hashed(value)
        )
    if getattr(value, "shape", None) is not None and hasattr(value, "dtype"):
        array = f"{value.dtype}[{','.join(map(str, value.shape))}]"
        return Fixed(array, (Same(value),))
    if callable(value) and owner is not None and hasattr(value, "__func__"):  # a method: Python compares what it is of
        return Fixed(_shown(value), (Same(owner), Same(value.__func__)))
    if isinstance(value, type) or type(value).__eq__ in _BY_IDENTITY:
        return Fixed(_shown(value), (Same(value),), hash(getattr(value, "__code__", 0)))
    return None


def _inner(value: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of the parts."""
    graph = (getattr(value, "nodes", None), getattr(value, "attributes", None))
    if all(isinstance(one, list | tuple) for one in graph):
        yield from _graph("", iter(graph[0] or ()), iter(graph[1] or ()))
    elif names := getattr(value, "_fields", ()):
        yield from ((f".{name}", getattr(value, name)) for name in names)
    elif isinstance(value, tuple | list):
        yield from ((f"[{at}]", one) for at, one in enumerate(value))
    elif isinstance(value, Mapping):
        yield from ((f"[{_shown(name)}]", value[name]) for name in value)
    elif dataclasses.is_dataclass(value):
        compared = (field.name for field in dataclasses.fields(value) if field.compare)
        yield from ((f".{name}", getattr(value, name)) for name in compared if hasattr(value, name))
    else:
        yield from ((f".{name}", one) for name, one in getattr(value, "__dict__", {}).items())


def _graph(path: str, nodes: Iterator[Any], attributes: Iterator[Any]) -> Iterator[tuple[str, Any]]:
    """The attributes of a flax.nnx graph: its nodes, and all of their attributes, are listed in order of the walk."""
    node = next(nodes, None)
    metadata = getattr(node, "metadata", None)
    yield path, metadata if isinstance(metadata, Mapping | type) else type(node)
    for name, attribute in islice(attributes, getattr(node, "num_attributes", 0) or 0):
        if type(attribute).__name__ == "NodeAttr":
            yield from _graph(f"{path}.{name}", nodes, attributes)
        elif hasattr(attribute, "value") and not str(name).startswith("_pytree__"):
            yield f"{path}.{name}", attribute.value


def _hashed(value: Any) -> int | tuple[Same, ...]:
    try:
        return hash(value)
    except Exception:
        return (Same(value),)


def _named(kind: type) -> str:
    return clip(kind.__qualname__, _SHOWN)


def _shown(value: Any) -> str:
    """In a word: never an address, for the next run has another."""
    if type(value) in _PLAIN:
        return clip(repr(value), _SHOWN)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not isinstance(name, str) or not name:
        of = getattr(value, "func", None) or getattr(value, "__wrapped__", None)
        inner = getattr(of, "__qualname__", "")
        name = f"{type(value).__qualname__} of {inner}" if inner else type(value).__qualname__
    return clip(name, _SHOWN)
