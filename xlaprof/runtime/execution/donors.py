"""Buffers that the user marks for donation, by ``torch_xla._XLAC._set_buffer_donation``.

Buffers that a graph overwrites are donated anyway. This is for inputs that are not needed afterwards: their memory may
hold a result. The buffer is marked, not the tensor: a value computed into the tensor later is not.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.storage import Failed, Storage

#: id of a marked buffer -> a reference that forgets it
_marked: dict[int, Any] = {}

#: Stands for a buffer that was given up: reading its tensor raises this error.
GONE = Failed(
    RuntimeError,
    "its buffer was donated to a compiled graph: clone() what is needed afterwards, or do not mark it",
)


def mark(array: Any, on: bool) -> None:
    """Mark ``array`` for the next program that takes it, or unmark it."""
    key = id(array)
    if on:
        _marked[key] = ref(array, lambda _: _marked.pop(key, None))
    else:
        _marked.pop(key, None)


def is_marked(array: Any) -> bool:
    """Is ``array`` marked?"""
    return id(array) in _marked


def on_tape(tape: Tape) -> tuple[int, ...]:
    """Positions of the tape's inputs that are marked."""
    return tuple(i for i, array in enumerate(tape.arrays) if id(array) in _marked) if _marked else ()


def give_up(storage: Storage) -> None:
    """Leave the buffer of ``storage`` to the program: reading its tensor raises an error from now on."""
    storage.array = GONE
