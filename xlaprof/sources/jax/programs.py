"""What a program needs, and which arguments it could be given for good: asked of XLA once it ran for the first time."""

from __future__ import annotations

import os
import weakref
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from xlaprof import events
from xlaprof.events.jit import Collective
from xlaprof.recording.stacks import RawFrame

from . import collectives, internals, signature

if TYPE_CHECKING:
    from xlaprof.recording.recorder import Recorder


_LARGE = 1 << 20  # bytes of an array: what smaller ones take nobody misses
_LOOKED_AT = 16  # calls after which it is said
_PASSING = 1  # times that an array may outlive its call by one: another thread looks at a frame that had it
_ENOUGH = 3  # of a function that is called no more often
_LEAVES = 4_096  # of a call: of more it is not known


def tell(rec: Recorder, executable: Any, name: str, stack: int, program: int, t: int) -> None:
    """Ask XLA. It takes milliseconds for large programs: not in the program's own thread."""
    asked = internals.loaded(executable)
    if asked is None:
        return
    memory, cost = asked.get_compiled_memory_stats(), asked.cost_analysis()
    devices = len(asked.local_devices())
    found = collectives.exchanges(asked.hlo_modules()[0].to_string()) if devices > 1 else []
    rec.emit(
        events.JitProgram(
            t=t,
            func=rec.text(name),
            stack=stack,
            program=program,
            arguments=memory.argument_size_in_bytes,
            results=memory.output_size_in_bytes,
            temporary=memory.temp_size_in_bytes,
            donated=memory.alias_size_in_bytes,
            flops=_count(cost, "flops"),
            accessed=_count(cost, "bytes accessed"),
            devices=devices,
            collectives=[_collective(rec, one) for one in found],
        )
    )


def _count(cost: Any, name: str) -> int:
    """XLA says -1 of what it does not know."""
    return max(0, int(cost.get(name, 0.0))) if isinstance(cost, dict) else 0


def _collective(rec: Recorder, one: collectives.Exchange) -> Collective:
    frames: tuple[RawFrame, ...] = one.frames
    return Collective(
        kind=one.kind,
        shape=one.shape,
        bytes=one.bytes,
        count=one.times,
        stack=rec.stack(frames) if frames else 0,
        arguments=[f"{name}: {divided}" for name, divided in one.arguments],
    )


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


class Arguments:
    """The arguments of a function's calls at one line: whether anything holds them after the call.

    A result of the same shape and dtype could be in their place (``donate_argnums``). Each is looked at through a weak
    reference when the next call comes.
    """

    def __init__(self, miss: internals.Miss, out: Any) -> None:
        self.calls = 0
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

    @property
    def over(self) -> bool:
        """Whether there is nothing to look at any more."""
        return not self._leaves or self.calls >= _LOOKED_AT

    def called(self, args: Any, kwargs: Any, ours: Collection[int]) -> None:
        """The function is called again. ``ours``: ids of arrays that we hold ourselves."""
        self.calls += 1
        self._leaves = [leaf for leaf in self._leaves if not leaf.is_held(ours)]
        self._watch(_leaves(args, kwargs) or [])

    def _watch(self, leaves: list[Any]) -> None:
        array = internals.array_class()
        self._leaves = [one for one in self._leaves if one.at < len(leaves) and type(leaves[one.at]) is array]
        for one in self._leaves:
            one.of.append(weakref.ref(leaves[one.at]))

    def tell(self, rec: Recorder, name: str, stack: int, t: int) -> None:
        """Say what could be donated."""
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
