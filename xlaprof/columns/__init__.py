"""Many events at once: their numbers as columns, read from the bytes of a log, or from the events themselves.

Import the files of this package only for many events: numpy takes a tenth of a second to import, and need not be
installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import cache
from importlib.util import find_spec
from typing import Any

#: bytes of a log that is read in columns: some hundred thousand events
LONG = 8_000_000


def present(batch: Sequence[Any]) -> Set[type]:
    """The kinds of the events of a batch."""
    kinds: Set[type] | None = getattr(batch, "present", None)  # of lines of a log
    return set(map(type, batch)) if kinds is None else kinds


def of_kinds(batch: Sequence[Any], kinds: Set[type]) -> Iterator[Any]:
    """The events of some kinds, in order; of lines of a log no others are decoded."""
    of: Callable[[Set[type]], Iterator[Any]] | None = getattr(batch, "of_kinds", None)
    return (event for event in batch if type(event) in kinds) if of is None else of(kinds)


def events_of(batches: Iterable[Sequence[Any]], kinds: Set[type]) -> Iterator[Any]:
    """The events of some kinds in several batches."""
    for batch in batches:
        yield from of_kinds(batch, kinds)


def gathered(pieces: Iterable[bytes], least: int) -> Iterator[bytes]:
    """The same bytes in pieces that are not shorter, but for the last one."""
    held, size = [], 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= least:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


@cache
def has_numpy() -> bool:
    """Whether numpy is installed."""
    return find_spec("numpy") is not None
