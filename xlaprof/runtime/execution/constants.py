"""The first step is the steady one: constants that outlive the trace are inputs of its graph, not operations of it.

An optimizer makes its state in its first step (``zeros_like``), writes to it, and keeps it. As operations, these would
be in the first step's graph alone; from the second step on the state is an input, and the same step would be compiled
again. So a constant (one number in all elements) whose tensor is alive where the graph is cut, and was written to, gets
its array there, and the graph takes it as it takes any tensor's.

Not what each step makes anew (masks, totals): that is in all graphs, where XLA folds it and it costs no transfer. So it
must be an optimizer's or a ``GradScaler``'s, or have been made before the loop that the barrier is in.

A read's graph takes constants so too, for itself: its trace goes on, and is cut as if there had been no read. It also
takes a single number that nobody has written to yet (the scale of a ``GradScaler``).

PyTorch/XLA compiles both graphs; so does strict parity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlaprof.recording import stacks
from xlaprof.recording.stacks import RawFrame
from xlaprof.runtime import parity
from xlaprof.runtime.clock import aside
from xlaprof.runtime.lowering.registry import JAX_DTYPE
from xlaprof.runtime.tape.graph import depended_on
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.ops import Op
from xlaprof.runtime.trace.storage import NOWHERE, Constant, Copy, Sig, Storage
from xlaprof.runtime.trace.trie import Node, Packed
from xlaprof.source_text.lines import is_in_loop, loop_line

#: from this size on a constant is filled on the device, by a program for its shape; a smaller one is sent faster
LARGE = 64 << 20

#: operators -> the number in all elements
_NUMBERS = {
    **{f"aten.{name}.default": 0 for name in ("zeros", "zeros_like", "new_zeros")},
    **{f"aten.{name}.default": 1 for name in ("ones", "ones_like", "new_ones")},
}
#: operators -> which argument the number is, unless it is given by name
_ARGUMENTS = {"aten.full.default": 1, "aten.full_like.default": 1, "aten.new_full.default": 2}
_NAMED = "fill_value"


#: roles of operations whose results are kept from step to step (:func:`.source.role`)
_KEPT_BY = ("state", "optimizer")


class Given(NamedTuple):
    """A constant that a graph takes as an input."""

    slot: int
    sig: Sig
    number: Any  # or :class:`Packed`
    frames: tuple[Any, ...]  # the user's, which made it


def is_constant(op: Op) -> bool:
    """Are all elements of what ``op`` makes one number, whatever tensor it is made like?"""
    return op.name in _NUMBERS or op.name in _ARGUMENTS


def find(
    tape: Tape, outs: tuple[int, ...], alive: Sequence[Storage], frames: tuple[RawFrame, ...], *, at_barrier: bool
) -> tuple[Given, ...]:
    """The constants that the graph of the values at ``outs`` is to take as inputs.

    ``alive``: the storages; ``frames``: the user's at the barrier or the read, if they are known already.
    """
    if parity.strict or tape.partition is not None:
        return ()
    begun = [*_begun(tape, alive)] if at_barrier else _at_read(tape, alive, outs)
    if not begun:
        return ()
    nodes = depended_on(tape.node, outs)
    found = [
        (node, number)
        for slot in begun
        if (node := nodes.get(slot)) is not None and (number := _number(tape, node)) is not None
    ]
    loop = _loop_around(frames or stacks.user_frames()) if any(node.role not in _KEPT_BY for node, _ in found) else None
    return tuple(
        Given(node.slot, node.sig, number, node.frames)
        for node, number in found
        if node.role in _KEPT_BY or (loop is not None and not _is_inside(node.frames, loop))
    )


def give(tape: Tape, found: tuple[Given, ...], alive: Sequence[Storage], *, at_barrier: bool) -> bool:
    """Make the arrays of ``found``, and have the tape's graph take them as inputs.

    False if that cannot be this time: at a barrier, a storage that began with one of them is gone, or another shows it.
    """
    owners = _begun(tape, alive) if at_barrier else {one.slot: _nobody(tape, one) for one in found}
    if not all(one.slot in owners for one in found):
        return False
    for one in found:
        number = tape.number(one.number) if type(one.number) is Packed else one.number
        array = _array(tape, one.sig, number) if at_barrier else _kept(tape, one.sig, number)
        owner = owners[one.slot]
        owner.frames = owner.frames or one.frames
        tape.give(one.slot, array, owner)
    return True


def _begun(tape: Tape, alive: Sequence[Storage]) -> dict[int, Storage]:
    """The storages that began on this trace and were written to, by the slot of their first value.

    Without those whose first value another storage shows, or began with.
    """
    shown = {storage.slot for storage in alive if storage.epoch == tape.epoch}
    found: dict[int, Storage] = {}
    for storage in alive:
        slot = _first(tape, storage)
        if slot is not None and slot not in shown:
            if slot in found:
                shown.add(slot)
            found[slot] = storage
    return {slot: storage for slot, storage in found.items() if slot not in shown}


def _at_read(tape: Tape, alive: Sequence[Storage], outs: tuple[int, ...]) -> list[int]:
    """Slots of the first values of storages that were written to, or have one element. The arrays are only read."""
    found = {
        slot: None
        for storage in alive
        if (slot := _first(tape, storage)) is not None
        and slot not in outs
        and (storage.slot != slot or math.prod(storage.sig.shape) == 1)
    }
    return [*found]


def _first(tape: Tape, storage: Storage) -> int | None:
    """The slot of the first value of a storage that began on this trace, perhaps with one number in all elements."""
    kind = type(storage)
    if kind is Constant:
        epoch, slot = storage.made  # type: ignore[attr-defined]
    elif kind is Copy:
        epoch, slot = storage.of  # type: ignore[attr-defined]
    else:
        return None
    return slot if epoch == tape.epoch else None


def _loop_around(frames: tuple[RawFrame, ...]) -> RawFrame | None:
    """The head of the innermost loop that ``frames`` are in, and its function; ``None`` if they are in none."""
    stack = stacks.whole(frames)  # it may be a library's loop
    return next((frame._replace(line=head) for frame in stack if (head := loop_line(frame.file, frame.line))), None)


def _is_inside(frames: tuple[RawFrame, ...], loop: RawFrame) -> bool:
    """Is one of ``frames`` in the body of ``loop``?"""
    return any(
        frame.file == loop.file and frame.func == loop.func and is_in_loop(loop.file, frame.line, loop.line)
        for frame in stacks.whole(frames)
    )


def _nobody(tape: Tape, one: Given) -> Storage:
    """Stands for the storage that a read's array belongs to."""
    return Storage(tape, one.sig, one.slot, tape.epoch, NOWHERE)


def _number(tape: Tape, node: Node) -> Any:
    """The number in all elements of what ``node`` makes.

    ``None`` if there is none such, or if the host would round it otherwise than XLA.
    """
    name = node.op.name if node.op is not None else ""
    number: Any = _NUMBERS.get(name)
    at = _ARGUMENTS.get(name)
    if at is None:
        return number
    number = node.kwargs[_NAMED] if _NAMED in node.kwargs else node.args[at]
    value = tape.number(number) if type(number) is Packed else number
    if not isinstance(value, (bool, int, float)):
        return None
    is_exact = bool(np.array(value, JAX_DTYPE[node.sig.dtype]) == value)
    return number if is_exact else None


def _array(tape: Tape, sig: Sig, number: Any) -> jax.Array:
    """A new one: a program may overwrite it."""
    dtype = np.dtype(JAX_DTYPE[sig.dtype])
    with aside(), jax.enable_x64(True):
        if math.prod(sig.shape) * dtype.itemsize >= LARGE:
            return jnp.full(sig.shape, number, dtype, device=tape.device)
        array: jax.Array = jax.device_put(np.full(sig.shape, number, dtype), tape.device)
        return array


def _kept(tape: Tape, sig: Sig, number: Any) -> jax.Array:
    """One that is only read: kept, if it is of one element."""
    if math.prod(sig.shape) != 1:
        return _array(tape, sig, number)
    key = tape.index, sig, repr(number)  # 0.0 and -0.0 are equal
    array = _single.get(key)
    if array is None:
        if len(_single) >= _KEPT:
            _single.clear()
        array = _single[key] = _array(tape, sig, number)
    return array


#: (tape, signature, number) -> the array that reads take for it
_single: dict[tuple[int, Sig, str], jax.Array] = {}
_KEPT = 1024
