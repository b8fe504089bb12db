"""The input and the result of an export."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from xlaprof.events import Event
from xlaprof.log import Recording


class Job(msgspec.Struct, frozen=True):
    """One export."""

    source: Path  # the log, for names and messages
    events: Iterable[Event]
    out: Path
    force: bool = False
    #: opens the recording for another reading; the argument says what for
    read: Callable[[str], tuple[Recording, Recording]] | None = None
    #: shows what is being done, if that takes long; "" for nothing any more
    tell: Callable[[str], None] = lambda message: None


class Written(msgspec.Struct, frozen=True):
    """The files that were written. ``hint``: the command that shows them."""

    format: str
    path: str
    files: tuple[str, ...]
    events: int
    hint: str
    steps: int = 0
    executions: int = 0
    notes: tuple[str, ...] = ()
    whole: bool = False  # the format has read the recording itself: ``notes`` are all there is to say of it
