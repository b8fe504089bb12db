"""What becomes of the arguments of a function's calls: nothing holds them afterwards, or the next call has the same.

The first could be given to XLA for good. What a program computes from the second alone it computes again and again.
"""

from __future__ import annotations

import os
import weakref
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from xlaprof import events

from . import internals, signature
from .jaxprs import repeated

if TYPE_CHECKING:
    from xlaprof.recording.recorder import Recorder

_LARGE = 1 << 20  # bytes of an array: what smaller ones take nobody misses
_LOOKED_AT = 16  # calls after which it is said
_PASSING = 1  # times that an array may outlive its call by one: another thread looks at a frame that had it
_ENOUGH = 3  # of a function that is called no more often
_LEAVES = 4_096  # of a call: of more it is not known
_SHARE = 0.02  # of a program's work: to compute less of it again costs nothing


class _Leaf:
    """An array among the arguments, with a result of its shape."""

    __slots__ = ("argument", "at", "bytes", "gone", "late", "of")

    def __init__(self, at: int, argument: str, size: int) -> None:
        self.at, self.argument, self.bytes = at, argument, size  # at: among the leaves of a call
        self.of: list[weakref.ref[Any]] = []  # in the calls of which it is not known yet, the latest last
        self.gone = 0  # calls after which nothing held it
        self.late = 0  # times that something did

    def is_held(self, ours: Collection[int]) -> bool:
        """Whether the program holds those of earlier calls; ``ours``: ids of arrays that we hold ourselves. One that is
        gone by the next look was held in passing."""
        left = [(one, array) for one in self.of if (array := one()) is not None]
        self.gone += len(self.of) - len(left)
        self.of = [one for one, _ in left]
        self.late += any(id(array) not in ours for _, array in left)
        return self.late > _PASSING


class _Same:
    """The arguments that were the same arrays, or equal numbers, in each call. An array of the host's may change."""

    def __init__(self, leaves: list[Any], traced: list[tuple[int, str]], jaxpr: Any) -> None:
        """``traced``: of each of the program's arguments, which of the call's leaves it is, and its name."""
        self.work: list[repeated.Part] = []
        self._jaxpr = jaxpr if len(jaxpr.jaxpr.invars) == len(traced) else None
        self._names = [name for _, name in traced]
        self._of = {bit: (at, _held(leaves[at])) for bit, (at, _) in enumerate(traced)}

    def look(self) -> None:
        """What the program computes from which arguments: once, and not in the program's thread."""
        jaxpr, self._jaxpr = self._jaxpr, None
        if jaxpr is not None:
            self.work = repeated.parts(jaxpr)

    def called(self, leaves: list[Any]) -> None:
        for bit, (at, before) in list(self._of.items()):
            if at >= len(leaves) or _held(leaves[at]) != before:
                del self._of[bit]

    def tell(self, rec: Recorder, name: str, stack: int, t: int, calls: int) -> None:
        same = sum(1 << bit for bit in self._of)
        share, dearest = repeated.repeated(self.work, same)
        if dearest is None or share < _SHARE or calls < _ENOUGH:
            return
        rec.emit(
            events.RepeatedWork(
                t=t,
                func=rec.text(name),
                stack=stack,
                line=rec.stack(dearest.frames) if dearest.frames else 0,
                operation=dearest.operation,
                shape=list(dearest.shape),
                arguments=list(dict.fromkeys(self._names[bit] for bit in self._of if dearest.depends >> bit & 1)),
                share=round(1_000 * share),
                calls=calls,
            )
        )


def _held(leaf: Any) -> Any:
    """What is equal of two arguments only where they are the same; an array is not kept alive."""
    if isinstance(leaf, bool | int | float | complex):
        return type(leaf), leaf
    return _Array(leaf) if type(leaf) is internals.array_class() else object()


class _Array:
    """A device's array."""

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array = weakref.ref(array)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Array) and (array := self._array()) is not None and array is other._array()

    __hash__ = None  # type: ignore[assignment]


class Arguments:
    """The arguments of a function's calls at one line: whether anything holds them after the call, and whether the next
    has the same.

    A result of the same shape and dtype could be in their place (``donate_argnums``). Each is looked at through a weak
    reference when the next call comes.
    """

    def __init__(self, miss: internals.Miss, out: Any, jaxpr: Any) -> None:
        """``jaxpr``: of the program; None: it is not known."""
        self.calls = 0
        self.same: _Same | None = None
        self._leaves: list[_Leaf] = []
        opened = internals.opened(miss)
        self._library = "equinox" if opened is not miss else _library(miss.fun)
        leaves = _leaves(miss.args, miss.kwargs)
        if leaves is None or len(leaves) > _LEAVES:
            return
        array, names = internals.array_class(), _names(opened)
        free = Counter(_like(one) for one in out if type(one) is array and one.nbytes >= _LARGE)
        for at, leaf in enumerate(leaves):
            if type(leaf) is array and leaf.nbytes >= _LARGE and id(leaf) in names and free[_like(leaf)]:
                free[_like(leaf)] -= 1
                self._leaves.append(_Leaf(at, names[id(leaf)], leaf.nbytes))
        self._watch(leaves)
        if jaxpr is not None:
            traced = [(at, names.get(id(leaves[at]), name)) for at, name in _traced(miss) if at < len(leaves)]
            self.same = _Same(leaves, traced, jaxpr)

    @property
    def over(self) -> bool:
        """Whether there is nothing to look at any more."""
        return not (self._leaves or self.same) or self.calls >= _LOOKED_AT

    def called(self, args: Any, kwargs: Any, ours: Collection[int]) -> None:
        """The function is called again. ``ours``: ids of arrays that we hold ourselves."""
        self.calls += 1
        self._leaves = [leaf for leaf in self._leaves if not leaf.is_held(ours)]
        leaves = _leaves(args, kwargs) or []
        self._watch(leaves)
        if self.same is not None:
            self.same.called(leaves)

    def _watch(self, leaves: list[Any]) -> None:
        array = internals.array_class()
        self._leaves = [one for one in self._leaves if one.at < len(leaves) and type(leaves[one.at]) is array]
        for one in self._leaves:
            one.of.append(weakref.ref(leaves[one.at]))

    def tell(self, rec: Recorder, name: str, stack: int, t: int) -> None:
        """Say what could be donated, and what is computed again."""
        if self.same is not None:
            self.same.tell(rec, name, stack, t, self.calls + 1)  # with the one that was compiled
        found = [leaf for leaf in self._leaves if leaf.gone >= _ENOUGH]
        if found:
            rec.emit(
                events.Undonated(
                    t=t,
                    func=rec.text(name),
                    stack=stack,
                    arguments=list(dict.fromkeys(leaf.argument for leaf in found)),
                    arrays=len(found),
                    bytes=sum(leaf.bytes for leaf in found),
                    calls=self.calls,
                    library=self._library,
                )
            )


def _traced(miss: internals.Miss) -> list[tuple[int, str]]:
    """Of each argument of the program, in JAX's order: which of the call's leaves it is, and its name."""
    given = list(signature.arguments(miss))
    positional, named = given[: len(miss.args)], sorted(given[len(miss.args) :], key=lambda one: one[0])
    found, at = list[tuple[int, str]](), 0
    for name, value, fixed in (*positional, *named):
        count = len(_leaves(value) or ())
        found += [] if fixed else [(one, name) for one in range(at, at + count)]
        at += count
    return found


def _names(miss: internals.Miss) -> dict[int, str]:
    """The name of the argument that each leaf belongs to, by its id: of those that are not donated."""
    given = set(getattr(miss.options, "donate_argnums", ()) or ())
    names = set(getattr(miss.options, "donate_argnames", ()) or ())
    found = dict[int, str]()
    for at, (name, value, fixed) in enumerate(signature.arguments(miss)):
        kept = not given & {at, "rest" if at else "first"}  # equinox has no numbers
        if kept and not fixed and name not in names:
            found |= dict.fromkeys(map(id, _leaves(value) or ()), name)
    return found


def _like(array: Any) -> tuple[Any, ...]:
    return array.shape, array.dtype


def _leaves(*values: Any) -> list[Any] | None:
    from jax.tree_util import tree_leaves

    try:
        return list(tree_leaves(values))
    except Exception:  # a pytree of the program's raises: its own calls say so
        return None


def _library(fun: Any) -> str:
    """Whose wrapper of ``jax.jit`` is given to JAX."""
    code = getattr(fun, "__code__", None)
    where = code.co_filename if code is not None else type(fun).__module__.replace(".", "/")
    return "flax" if "flax/nnx/" in f"{where}/".replace(os.sep, "/") else ""
