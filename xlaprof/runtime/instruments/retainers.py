"""Which list, dict, variable or attribute of the program retains tensors.

:func:`retainers` starts from the program's variables: it searches the locals of running functions, globals, and what
these refer to, breadth first and for some milliseconds, for containers with many tensors of the same lines. It runs,
seldom, when such tensors accumulate. :func:`retainer_of` starts from one tensor and asks the garbage collector for
references to it. It runs when a graph was compiled because a tensor is still alive.

Both read only stored attributes and items, and run no code of the program.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from itertools import islice
from time import perf_counter_ns
from types import BuiltinFunctionType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from xlaprof.recording.stacks import shown_file
from xlaprof.runtime.trace import source
from xlaprof.runtime.trace.naming import GIVE_LOCALS
from xlaprof.runtime.trace.storage import View
from xlaprof.runtime.trace.tensor import XLATensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

    from xlaprof.recording.stacks import RawFrame
    from xlaprof.runtime.trace.storage import Storage

LIMIT_NS = 10_000_000
_OBJECTS = 20_000
_DEPTH = 60  # frames
_ENDS = 16  # elements inspected at either end of a sequence
_ATTRIBUTES = 256
_LEAST = 3  # tensors found in a container that make it a retainer
#: ns that :func:`retainer_of` may take in one process: it searches the whole heap
_BUDGET_NS = 500_000_000
_spent_ns = 0

_CONTAINERS = (list, deque, dict, set)
_LEAVES = (
    type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, CodeType,
    str, bytes, bytearray, int, float, complex, bool, type(None),
)  # fmt: skip
_OPTIMIZED = 0x1  # inspect.CO_OPTIMIZED: a function, whose locals are not a dict


class Retainer(NamedTuple):
    """A container, variable or attribute that retains tensors."""

    path: str  # as a reader knows it: "Metrics.history", "logs['loss']"; "" where its name is not available
    kind: str  # "list", "dict"..., "variable", "attribute"
    length: int
    name: str = ""  # of the variable or attribute that holds it
    owner: str = ""  # class of the object whose attribute it is; "" of a variable
    history: bool = False  # its tensors have one: what their gradient needs is retained, too
    files: tuple[str, ...] = ()  # in which its name is used: that of the class, or of the function


class _Named(NamedTuple):
    value: Any
    name: str
    owner: str
    path: str
    files: tuple[str, ...]


def retainers(made: Iterable[tuple[RawFrame, ...]], limit_ns: int = LIMIT_NS) -> list[Retainer]:
    """Containers in which there are several tensors made at one of these places; the longest first."""
    end = perf_counter_ns() + limit_ns
    places = frozenset(made)
    found: list[Retainer] = []
    todo = deque(_variables())
    seen: set[int] = set()
    while todo and len(seen) < _OBJECTS and perf_counter_ns() < end:
        one = todo.popleft()
        value = one.value
        if id(value) in seen:
            continue
        seen.add(id(value))
        items = _some(value) if _is(value, _CONTAINERS) else []
        kept = [held for held in (_made(item, places) for item in items) if held]
        if len(kept) >= _LEAST:
            length = sum(1 for _ in _items(value))
            history = any(tensor.requires_grad and not tensor.is_leaf for held in kept for tensor in held)
            kind = type(value).__name__
            found.append(Retainer(one.path, kind, length, one.name, one.owner, history, one.files))
        todo.extend(_inside(one))  # of a dict of lists it is the lists that grow
    return sorted(found, key=lambda retainer: -retainer.length)


def _is(value: Any, kinds: type | tuple[type, ...]) -> bool:
    """``isinstance()`` without reading the ``__class__`` of proxies, which would run their code."""
    return issubclass(type(value), kinds)


# -- where the search begins


def _variables() -> Iterator[_Named]:
    """The locals of the user's running functions, innermost first; then the globals of their modules."""
    modules: set[int] = set()
    later: list[_Named] = []
    for frame in source.outward(sys._getframe(1), _DEPTH):
        if file := shown_file(frame):
            for name, value in _locals(frame):
                yield _Named(value, name, "", name, (file,))
            if id(frame.f_globals) not in modules:
                modules.add(id(frame.f_globals))
                later += [
                    _Named(value, name, "", name, (file,))
                    for name, value in list(frame.f_globals.items())
                    if not name.startswith("__") and _is_worth(value)
                ]
    yield from later


def _locals(frame: FrameType) -> list[tuple[str, Any]]:
    """A function's variables, without keeping their values alive.

    Before Python 3.13 reading them makes a snapshot that stays with the frame, so it is emptied. If the program may
    hold that snapshot, or a debugger may write it back, nothing is read.
    """
    code = frame.f_code
    if not code.co_flags & _OPTIMIZED or not GIVE_LOCALS.isdisjoint(code.co_names):
        return []
    if sys.version_info >= (3, 13):
        return [(name, value) for name, value in frame.f_locals.items() if _is_worth(value)]
    if sys.gettrace() is not None or sys.getprofile() is not None:
        return []
    snapshot = frame.f_locals
    found = [(name, value) for name, value in snapshot.items() if _is_worth(value)]
    snapshot.clear()
    return found


def _is_worth(value: Any) -> bool:
    return not _is(value, (*_LEAVES, XLATensor))


# -- what is inside


def _items(container: Any) -> Iterator[Any]:
    """Its elements (a dict's values), by the built-in type's method, even if a subclass overrides it."""
    if _is(container, dict):
        return iter(dict.values(container))
    kind: Any = next(kind for kind in (list, tuple, deque, set) if _is(container, kind))
    elements: Iterator[Any] = kind.__iter__(container)
    return elements


def _some(container: Any) -> list[Any]:
    """Elements from both ends of a container."""
    found = list(islice(_items(container), 2 * _ENDS))
    if len(found) < 2 * _ENDS or _is(container, set):
        return found
    if _is(container, dict):
        last: Iterator[Any] = reversed(dict.values(container))
    elif _is(container, tuple):
        last = iter(tuple.__getitem__(container, slice(-_ENDS, None)))
    else:
        last = list.__reversed__(container) if _is(container, list) else deque.__reversed__(container)
    return found[:_ENDS] + list(islice(last, _ENDS))


def _made(item: Any, places: frozenset[tuple[RawFrame, ...]], *, within: bool = True) -> list[XLATensor]:
    """Tensors made at one of ``places``: the item itself, or those in it (a pair, a record)."""
    if _is(item, XLATensor):
        return [item] if _made_at(item._storage) in places else []
    if not within or _is(item, _LEAVES):
        return []
    held = _some(item) if _is(item, (*_CONTAINERS, tuple)) else [value for _, value in _attributes(item)]
    return [made for one in held for made in _made(one, places, within=False)]


def _made_at(storage: Storage) -> tuple[RawFrame, ...]:
    while not storage.frames and isinstance(storage, View):
        storage = storage.base
    return storage.frames


def _inside(one: _Named) -> Iterator[_Named]:
    """Values inside a value that may hold tensors, with their names."""
    value = one.value
    if _is(value, dict):
        for key, item in list(islice(dict.items(value), _ATTRIBUTES)):
            if _is_worth(item):
                yield one._replace(value=item, path=f"{one.path}[{_key(key)}]")
        return
    if _is(value, (*_CONTAINERS, tuple)):
        for item in _some(value):
            if _is_worth(item):
                yield one._replace(value=item, path=f"{one.path}[...]")
        return
    owner = type(value).__qualname__
    file = getattr(sys.modules.get(type(value).__module__), "__file__", None)
    files = tuple(dict.fromkeys((*((file,) if file else ()), *one.files)))
    for name, item in _attributes(value):
        if _is_worth(item):
            yield _Named(item, name, owner, f"{owner}.{name}", files)


def _key(key: Any) -> str:
    text = repr(key) if type(key) in (str, int) else "..."
    return text if len(text) <= 40 else "..."


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """The attributes stored in ``value``."""
    found: list[tuple[str, Any]] = []
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        held = None
    if isinstance(held, dict):
        found += [(name, one) for name, one in list(islice(dict.items(held), _ATTRIBUTES)) if type(name) is str]
    for kind in type(value).__mro__:
        for name, member in list(vars(kind).items()) if "__slots__" in vars(kind) else ():
            if isinstance(member, MemberDescriptorType):
                try:
                    found.append((name, member.__get__(value)))
                except AttributeError:  # not set
                    continue
    return found


# -- who refers to one tensor


def retainer_of(storage: Storage) -> Retainer | None:
    """The container, variable or attribute that holds the tensor of ``storage``; ``None`` where none is found.

    It searches the heap, for half a second per process at most. Locals of running functions are not read.
    """
    global _spent_ns
    if _spent_ns >= _BUDGET_NS:
        return None
    start = perf_counter_ns()
    try:
        tensors = [one for one in gc.get_referrers(storage) if isinstance(one, XLATensor)]
        for tensor in tensors:
            for one in gc.get_referrers(tensor):
                if one is tensors or not isinstance(one, (list, dict, set)):
                    continue
                if isinstance(one, dict) and "__name__" in one and "__builtins__" in one:
                    name = next((str(key) for key, value in list(one.items()) if value is tensor), "")
                    return Retainer(name, "variable", 1)
                return Retainer(_name_of(one), type(one).__name__, len(one))
            attribute = _attribute(tensor)
            if attribute:
                return Retainer(attribute, "attribute", 1)
    finally:
        _spent_ns += perf_counter_ns() - start
    return None


def _name_of(container: Any) -> str:
    for one in gc.get_referrers(container):
        if isinstance(one, dict):
            for key, value in list(one.items()):
                if value is container and isinstance(key, str):
                    return key
    return _attribute(container)


def _attribute(value: Any) -> str:
    """``Class.name``, if ``value`` is an attribute of an object; else empty."""
    for one in gc.get_referrers(value):
        if isinstance(one, (type, list, tuple, dict, set)) or type(one).__module__.startswith("xlaprof"):
            continue
        for name, held in _attributes(one):
            if held is value:
                return f"{type(one).__name__}.{name}"
    return ""
