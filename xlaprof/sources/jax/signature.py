"""What a call of a jitted function looks like to JAX, and in what two calls differ.

A program serves the calls whose arguments have the same tree, and the same shape, dtype, weak type, placement at each
leaf, and equal static values. Values of arrays are never looked at.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from operator import ne
from typing import Any, NamedTuple
from weakref import ref

from xlaprof.events.jit import ArgumentChange
from xlaprof.text.strings import array_text, clip

from . import internals, static
from .internals import Miss, is_traced, keys
from .static import Fixed

LEAVES = 2_000  # of the arguments of one call; the rest is counted
_SHOWN = 60  # characters of a value
_SHARED = 50_000  # leaves of all calls that are kept as one object where they are equal
_CHANGES = 8  # listed
_NUMBERS = {bool: "bool", int: "int32", float: "float32", complex: "complex64"}  # what a Python number is to JAX
#: what flax.nnx has between an argument and its attributes
_OF_A_LIBRARY = re.compile(r"\._graphdef|\.states\[\d+\]")


class Leaf(NamedTuple):
    """An argument, or a part of one."""

    shape: tuple[Any, ...] | None  # None: it is no array
    dtype: str
    weak: bool
    placed: str  # sharding over devices; "" where JAX may choose
    device: str
    sort: str = ""  # "static": of a static argument, "field": of what a pytree has besides its leaves; "": an array
    fixed: Fixed = Fixed("")

    def __str__(self) -> str:
        if self.shape is None:
            return self.fixed.text or self.dtype
        return array_text(self.dtype, self.shape)


_NOTHING = Leaf(None, "", False, "", "", "")


class Signature(NamedTuple):
    """A call: leaves by their name, and what else is part of a program's key."""

    leaves: Mapping[str, Leaf]
    more: int  # arrays that are not in it
    function: Any  # a weak reference to the function object; None: JAX's own, with parameters that are no arguments
    options: Any  # of ``jit``
    context: Any  # JAX's configuration
    cleared: int = 0  # times that JAX's caches had been cleared
    held: Mapping[str, Leaf] = {}  # what of it can be compared: by the function's closure, or see static.handed

    @property
    def arrays(self) -> int:
        """How many arrays the call has."""
        return self.more + sum(not leaf.sort for leaf in self.leaves.values())


def signature(
    miss: Miss,
    context: Any,
    own: bool,
    cleared: int = 0,
    shared: dict[Leaf, Leaf] | None = None,
    held: Iterable[static.Part] = (),
) -> Signature:
    """The signature of a call that JAX has no program for; ``own``: of a function of the program's. ``held``: by it, or
    what an operation is traced for.

    ``shared``: leaves of other calls, for equal ones to be one object: two calls of a model share nearly all.
    """
    shared = {} if shared is None or len(shared) > _SHARED else shared
    leaves: dict[str, Leaf] = {}
    more = known = 0
    all_static = bool(getattr(miss.options, "static_leaves", False))
    for name, value, fixed in arguments(miss):
        for path, leaf in _fixed("static", name, value) if fixed else _tree(name, value, all_static):
            path = _OF_A_LIBRARY.sub("", path)
            known += not leaf.sort
            if (known if not leaf.sort else len(leaves) - known) > LEAVES:
                more += not leaf.sort
            else:
                leaves[path if path not in leaves else f"{path}#{len(leaves)}"] = shared.setdefault(leaf, leaf)
    options = miss.options
    asked = (
        *(getattr(options, name, None) for name in ("static_argnums", "static_argnames", "donate_argnums")),
        *(getattr(options, name, None) for name in ("donate_argnames", "device", "backend", "keep_unused")),
        repr(getattr(options, "in_shardings_leaves", ())),
        repr(getattr(options, "out_shardings_leaves", ())),
    )
    what = {name: Leaf(None, "", False, "", "", "field", one) for name, one in held}
    return Signature(leaves, more, _reference(miss.fun) if own else None, asked, context, cleared, what)


def _reference(function: Any) -> Any:
    try:
        return ref(function)
    except TypeError:  # a callable with slots: it is taken for the same one
        kind = type(function)
        return lambda: kind


def arguments(miss: Miss) -> Iterator[tuple[str, Any, bool]]:
    """Name, value and whether it is static, of each argument of a call."""
    parameters = getattr(getattr(miss.options, "fun_signature", None), "parameters", {})
    names = [name for name, one in parameters.items() if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    rest = next((name for name, one in parameters.items() if one.kind is one.VAR_POSITIONAL), "args")
    count = len(names) if rest == "args" else len(miss.args)
    positions = {n if n >= 0 else n + count for n in getattr(miss.options, "static_argnums", ())}
    fixed = set(getattr(miss.options, "static_argnames", ()) or ())
    for at, value in enumerate(miss.args):
        name = names[at] if at < len(names) else f"{rest}[{at - len(names)}]"
        yield name, value, at in positions or name in fixed
    for name, value in miss.kwargs.items():
        yield name, value, name in fixed


def _tree(path: str, value: Any, all_static: bool) -> Iterator[tuple[str, Leaf]]:
    """The leaves of an argument, and what its nodes have besides."""
    one_level = internals.one_level(value)
    if one_level is None:
        if all_static and not hasattr(value, "dtype"):
            yield from _fixed("field", path, value)
        else:
            yield path, _leaf(value)
        return
    children, more = one_level
    named = set()
    for key, child in children:
        name = getattr(key, "name", None)
        named.add(name)
        yield from _tree(f"{path}{keys([key])}", child, all_static)
    if isinstance(value, tuple | list | dict) or more is None:
        return  # its keys are in the paths
    fields = {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    if not named:  # it is static as a whole
        yield from _fixed("field", path, value)
    elif named <= fields:
        for name in sorted(fields - named):
            yield from _fixed("field", f"{path}.{name}", getattr(value, name, None))
    else:
        yield from _fixed("field", path, more)


def _fixed(sort: str, path: str, value: Any) -> Iterator[tuple[str, Leaf]]:
    for name, one in static.parts(path, value):
        yield name, Leaf(None, "", False, "", "", sort, one)


def _leaf(value: Any) -> Leaf:
    aval = getattr(value, "aval", None)
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:  # a Python number
        kind = type(value)
        return Leaf((), _NUMBERS.get(kind, kind.__name__), True, "", "")
    weak = bool(getattr(aval, "weak_type", False))
    if is_traced(value) or not getattr(value, "_committed", False):
        return Leaf(tuple(shape), str(dtype), weak, "", "")
    sharding = getattr(value, "sharding", None)
    devices = sorted(map(str, getattr(sharding, "device_set", ())))
    spec = getattr(sharding, "spec", None)
    return Leaf(tuple(shape), str(dtype), weak, "" if spec is None else str(spec), ", ".join(devices[:8]))


def nearest(now: Signature, earlier: list[Signature]) -> Signature | None:
    """The earlier call that ``now`` differs least from, the latest of several."""
    return min(reversed(earlier), key=lambda one: _distance(now, one), default=None)


def _distance(now: Signature, before: Signature) -> tuple[int, int, int, int]:
    """Things that differ: of the arguments; of these their sizes, which vary more often than all else; others; and what
    a closure holds."""
    names = now.leaves.keys() | before.leaves.keys()
    pairs = ((now.leaves.get(name, _NOTHING), before.leaves.get(name, _NOTHING)) for name in names)
    apart = [_apart(one, other) for one, other in pairs if one is not other and one != other]
    sizes = sum(size for size, _ in apart)
    others = (now.context != before.context) + (now.options != before.options)
    return sum(map(sum, apart)), sizes, others, sum(one != before.held.get(name) for name, one in now.held.items())


def _apart(one: Leaf, other: Leaf) -> tuple[int, int]:
    """In how many sizes two leaves differ, and in how many other things: the dtype, the placement..."""
    things = sum(map(ne, one[1:], other[1:]))
    if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
        return 2 * (one.shape != other.shape), things
    return sum(map(ne, one.shape, other.shape)), things


def differences(now: Signature, before: Signature, names: tuple[str, ...] = ()) -> list[ArgumentChange]:
    """In what ``now`` differs from ``before``: the arguments first. ``names``: of the entries of a context."""
    found = list(_of_tree(now, before)) or [
        change
        for name in {**now.leaves, **before.leaves}
        if now.leaves.get(name, _NOTHING) != before.leaves.get(name, _NOTHING)
        for change in (_of_leaf(name, before.leaves.get(name, _NOTHING), now.leaves.get(name, _NOTHING)),)
    ]
    held = [
        _of_leaf(name, before.held.get(name, _NOTHING), one)
        for name, one in now.held.items()
        if one != before.held.get(name)
    ]
    if now.function and any(change.kind == "field" and now.held[change.name].fixed.code for change in held):
        # what it calls is other code: no arguments would make it the same program
        return [ArgumentChange("function"), *held, *found][:_CHANGES]
    if found:
        return found[:_CHANGES]
    if now.more != before.more:
        return [ArgumentChange("structure", "", f"{before.more} more leaves", f"{now.more} more leaves")]
    if now.options != before.options:
        return [ArgumentChange("options")]
    if now.context != before.context:
        return [_of_context(now.context, before.context, names)]
    if now.cleared != before.cleared:
        return [ArgumentChange("evicted")]
    if now.function is None:  # an operation: a parameter of it that is no argument
        return [ArgumentChange("parameter"), *(one for one in held if one.kind == "anew")][:_CHANGES]
    if before.function() is now.function() is not None:
        return [ArgumentChange("unknown")]
    return [ArgumentChange("function"), *held][:_CHANGES]


def _of_tree(now: Signature, before: Signature) -> Iterator[ArgumentChange]:
    came = [name for name, leaf in now.leaves.items() if name not in before.leaves and not leaf.sort]
    went = [name for name, leaf in before.leaves.items() if name not in now.leaves and not leaf.sort]
    if came or went:
        subject = _common([*came, *went])
        yield ArgumentChange("structure", subject, _listed(went, before), _listed(came, now))


def _common(names: list[str]) -> str:
    """What all of these are parts of: ``state.params`` of ``state.params['a']`` and ``state.params['b']``."""
    parts = [re.findall(r"^\w+|\[[^\]]*\]|\.\w+", name) for name in names]
    shared = []
    for several in zip(*(one[:-1] or one for one in parts), strict=False):
        if len(set(several)) > 1:
            break
        shared.append(several[0])
    return "".join(shared)


def _listed(names: list[str], of: Signature) -> str:
    shown = ", ".join(f"{name} {of.leaves[name]}" for name in names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _of_leaf(name: str, before: Leaf, now: Leaf) -> ArgumentChange:
    if sort := now.sort or before.sort:
        if isinstance(now.fixed.same, tuple) and before.fixed._replace(same=None) == now.fixed._replace(same=None):
            sort = "anew"
        return ArgumentChange(sort, name, str(before), str(now))
    if before.shape != now.shape:
        if before.shape is None or now.shape is None or len(before.shape) != len(now.shape):
            return ArgumentChange("rank", name, str(before), str(now))
        changed = [at for at, pair in enumerate(zip(before.shape, now.shape, strict=True)) if pair[0] != pair[1]]
        return ArgumentChange("shape", name, str(before), str(now), changed[0])
    if before.dtype != now.dtype:
        return ArgumentChange("dtype", name, str(before), str(now))
    if before.weak != now.weak:
        texts = [f"{one}, weakly typed (from a Python number)" if one.weak else str(one) for one in (before, now)]
        return ArgumentChange("weak type", name, texts[0], texts[1])
    if before.device != now.device:
        return ArgumentChange("device", name, before.device or "not committed", now.device or "not committed")
    return ArgumentChange("sharding", name, before.placed or "not sharded", now.placed or "not sharded")


def _of_context(now: Any, before: Any, names: tuple[str, ...]) -> ArgumentChange:
    if not (isinstance(now, tuple) and isinstance(before, tuple) and len(now) == len(before)):
        return ArgumentChange("config")
    at = next(at for at, pair in enumerate(zip(before, now, strict=True)) if pair[0] != pair[1])
    name = names[at] if len(names) == len(now) else ""
    return ArgumentChange("config", name, clip(str(before[at]), _SHOWN), clip(str(now[at]), _SHOWN))
