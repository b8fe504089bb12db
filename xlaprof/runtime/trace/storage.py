"""Storages: a tensor on ``xla`` is a handle on one.

A :class:`Storage` has its value on the tape (``epoch`` is the tape's, and ``slot`` says which recorded value), or on
the device (``array``), or has none yet (``torch.empty``). A write in place gives it another slot; recorded values never
change.

Its value is contiguous, whatever the strides of the tensors it was computed from (as in PyTorch/XLA). The strides of a
view's tensor are those over its base.

A :class:`View` is a storage whose value is derived from its base's by a chain of view operators. It caches its slot. A
write to the base, or through another view, makes that slot stale: the chain is recorded again on next use. Only a piece
of its base (``split``) has an array of its own, until such a write.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import torch

if TYPE_CHECKING:
    from xlaprof.recording.stacks import RawFrame

#: epoch of a storage that has no slot on any tape
NOWHERE = -1


class Sig:
    """Shape and dtype, one object per combination: compared and hashed by identity."""

    __slots__ = ("dtype", "shape", "text")

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.shape = shape
        self.dtype = dtype
        self.text = f"{DTYPE_TEXT.get(dtype) or str(dtype).removeprefix('torch.')}[{','.join(map(str, shape))}]"

    @property
    def nbytes(self) -> int:
        """The size of a contiguous tensor, in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __repr__(self) -> str:
        return self.text


#: XLA's names of dtypes, as HLO writes them
DTYPE_TEXT = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int8: "s8",
    torch.int16: "s16",
    torch.int32: "s32",
    torch.int64: "s64",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.bool: "pred",
    torch.complex64: "c64",
    torch.complex128: "c128",
}

_sigs: dict[tuple[tuple[int, ...], torch.dtype], Sig] = {}


def sig(shape: tuple[int, ...], dtype: torch.dtype) -> Sig:
    """The one :class:`Sig` of ``shape`` and ``dtype``."""
    key = (shape, dtype)
    found = _sigs.get(key)
    if found is None:
        found = _sigs.setdefault(key, Sig(tuple(shape), dtype))
    return found


# msgspec structs because nothing in Python constructs faster: one is made per recorded operation.
# gc=False: storages refer to each other one way only (a view to its base), so they form no cycles.
class Storage(msgspec.Struct, gc=False, eq=False):
    """A piece of storage."""

    tape: Any  # :class:`~xlaprof.runtime.tape.tape.Tape`, of a later room
    sig: Sig
    slot: int
    epoch: int  # the tape's epoch for which ``slot`` holds
    listed: int  # the epoch in which it was put on the tape's list of possible outputs
    array: Any = None  # jax.Array, Failed, or None
    views: list[Any] | None = None  # weak references to View storages
    frames: tuple[RawFrame, ...] = ()  # the user's line that first filled its memory
    address: int = 0  # for data_ptr(), from its first call on
    sharding: Any = None  # over the devices, as annotated: an ``OpSharding`` of :mod:`xlaprof.runtime.spmd`, or None


class View(Storage, gc=True, weakref=True, eq=False, kw_only=True):
    """A storage that shows part of another, or all of it in another shape."""

    base: Storage
    steps: tuple[Any, ...]  # trie nodes (:class:`~.trie.Node`) of the view operators, outermost last


class Copy(Storage, gc=False, eq=False, kw_only=True):
    """A storage that was made by ``clone``, and has the slot of its original until a barrier needs both."""

    of: tuple[int, int]  # the epoch, and the original's slot
    own: int  # slot of the copy itself


class Constant(Storage, gc=False, eq=False, kw_only=True):
    """A storage that was made with one number in all elements (``zeros_like``, ``full``...), or without a value."""

    made: tuple[int, int] = (NOWHERE, 0)  # the epoch, and the slot of its first value, if that is one number


def base_of(storage: Storage) -> Storage:
    """The storage that ``storage`` shows: its base, or itself."""
    return storage.base if isinstance(storage, View) else storage


class Failed(msgspec.Struct, frozen=True):
    """Stands for the value of a computation that failed: the type and text of the error."""

    kind: type[BaseException]
    text: str
