"""What a call of a jitted function looks like to JAX, and in what two calls differ.

A program serves the calls whose arguments have the same tree, and the same shape, dtype, weak type, placement at each
leaf, and equal static values. Values of arrays are never looked at.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple
from weakref import ref

from xlaprof.events.jit import ArgumentChange
from xlaprof.text.strings import clip

from .internals import Miss, is_traced

LEAVES = 2_000  # of the arguments of one call; the rest is counted
_SHOWN = 60  # characters of a static value
_CHANGES = 8  # listed
_NUMBERS = {bool: "bool", int: "int32", float: "float32", complex: "complex64"}  # what a Python number is to JAX
_BITS = re.compile(r"^(float|int|uint|complex)(\d+)$")


class Leaf(NamedTuple):
    """An argument, or a part of one."""

    shape: tuple[Any, ...] | None  # None: it is no array
    dtype: str
    weak: bool
    placed: str  # sharding over devices; "" where JAX may choose
    device: str
    static: str = ""  # of a static argument: its repr

    def __str__(self) -> str:
        if self.shape is None:
            return self.static or self.dtype
        return f"{short(self.dtype)}[{','.join(map(str, self.shape))}]"


class Signature(NamedTuple):
    """A call: leaves by their name, and what else is part of a program's key."""

    leaves: Mapping[str, Leaf]
    more: int  # leaves that are not in it
    function: Any  # a weak reference to the function object; None: JAX's own, with parameters that are no arguments
    options: Any  # of ``jit``
    context: Any  # JAX's configuration


def short(dtype: str) -> str:
    """``float32`` as ``f32``."""
    return "bf16" if dtype == "bfloat16" else _BITS.sub(lambda found: found[1][0] + found[2], dtype)


def signature(miss: Miss, context: Any, own: bool) -> Signature:
    """The signature of a call that JAX has no program for; ``own``: of a function of the program's."""
    leaves: dict[str, Leaf] = {}
    more = 0
    for name, value, static in _arguments(miss):
        if static:
            leaves[name] = Leaf(None, "", False, "", "", _shown(value))
            continue
        for path, leaf in _flat(value):
            if len(leaves) < LEAVES:
                leaves[f"{name}{path}"] = _leaf(leaf)
            else:
                more += 1
    options = miss.options
    asked = (
        *(getattr(options, name, None) for name in ("static_argnums", "static_argnames", "donate_argnums")),
        *(getattr(options, name, None) for name in ("donate_argnames", "device", "backend", "keep_unused")),
        repr(getattr(options, "in_shardings_leaves", ())),
        repr(getattr(options, "out_shardings_leaves", ())),
    )
    return Signature(leaves, more, _reference(miss.fun) if own else None, asked, context)


def _reference(function: Any) -> Any:
    try:
        return ref(function)
    except TypeError:  # a callable with slots: it is taken for the same one
        kind = type(function)
        return lambda: kind


def _arguments(miss: Miss) -> Iterator[tuple[str, Any, bool]]:
    """Name, value and whether it is static, of each argument of a call."""
    parameters = getattr(getattr(miss.options, "fun_signature", None), "parameters", {})
    names = [name for name, one in parameters.items() if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    rest = next((name for name, one in parameters.items() if one.kind is one.VAR_POSITIONAL), "args")
    count = len(names) if rest == "args" else len(miss.args)
    positions = {n if n >= 0 else n + count for n in getattr(miss.options, "static_argnums", ())}
    static = set(getattr(miss.options, "static_argnames", ()))
    for at, value in enumerate(miss.args):
        name = names[at] if at < len(names) else f"{rest}[{at - len(names)}]"
        yield name, value, at in positions or name in static
    for name, value in miss.kwargs.items():
        yield name, value, name in static


def _flat(value: Any) -> Iterator[tuple[str, Any]]:
    from jax.tree_util import keystr, tree_flatten_with_path

    for path, leaf in tree_flatten_with_path(value)[0]:
        yield keystr(path), leaf


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


def _shown(value: Any) -> str:
    """A static value for people. Of objects the type alone: what they hold may be arrays, whose values enter no log."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return clip(repr(value), _SHOWN)
    if isinstance(value, tuple | frozenset):
        return clip(f"({', '.join(map(_shown, islice(value, _SHOWN)))})", _SHOWN)
    name = getattr(value, "__qualname__", None) or getattr(value, "name", None)  # a function, a class, a dtype
    return clip(name, _SHOWN) if isinstance(name, str) and name else f"{type(value).__name__} at {id(value):#x}"


def nearest(now: Signature, earlier: list[Signature]) -> Signature | None:
    """The earlier call that ``now`` differs least from, the latest of several."""
    return min(reversed(earlier), key=lambda one: _distance(now, one), default=None)


def _distance(now: Signature, before: Signature) -> tuple[int, int]:
    names = now.leaves.keys() | before.leaves.keys()
    arguments = sum(now.leaves.get(name) != before.leaves.get(name) for name in names)
    return arguments, (now.context != before.context) + (now.options != before.options)


def differences(now: Signature, before: Signature, names: tuple[str, ...] = ()) -> list[ArgumentChange]:
    """In what ``now`` differs from ``before``: the arguments first. ``names``: of the entries of a context."""
    found = list(_of_tree(now, before)) or [
        change
        for name, leaf in now.leaves.items()
        if leaf != before.leaves[name]
        for change in (_of_leaf(name, before.leaves[name], leaf),)
    ]
    if found:
        return found[:_CHANGES]
    if now.more != before.more:
        return [ArgumentChange("structure", "", f"{before.more} more leaves", f"{now.more} more leaves")]
    if now.options != before.options:
        return [ArgumentChange("options")]
    if now.context != before.context:
        return [_of_context(now.context, before.context, names)]
    if now.function is None:
        return []
    return [ArgumentChange("evicted" if before.function() is now.function() is not None else "function")]


def _of_tree(now: Signature, before: Signature) -> Iterator[ArgumentChange]:
    came = [name for name in now.leaves if name not in before.leaves]
    went = [name for name in before.leaves if name not in now.leaves]
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
    if before.static or now.static:
        return ArgumentChange("static", name, str(before), str(now))
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
