"""Which file source reads a path, by how its content begins."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from xlaprof.errors import UserError, warn
from xlaprof.events import AnyEvent
from xlaprof.log import Lines, LogError, LogReader, Reader, opening

from . import xlaprof_log

if TYPE_CHECKING:
    from .protocol import FileSource

#: bytes of content that sources are shown
HEAD = 1 << 16
_AT_ONCE = 16_384  # events


def read(path: str | os.PathLike[str]) -> LogReader | Checked:
    """The recording at ``path``, of whatever kind. Raises :class:`LogError`: one line, with what was tried."""
    path = os.fspath(path)
    source = recognise(path)
    return xlaprof_log.FILE.open(path) if source is xlaprof_log.FILE else Checked(source.open(path))


class Checked:
    """The events of another source, held to what a recording can hold; its errors are notes."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._lines = Lines()
        self._broken: list[str] = []

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self._reader.notes, *self._lines.notes(), *self._broken)

    @property
    def skipped(self) -> int:
        """Events with values that cannot be, and one where the source broke."""
        return self._lines.skipped + len(self._broken)

    def __iter__(self) -> Iterator[AnyEvent]:
        try:
            for event in self._reader:
                yield from self._lines.take(event)
        except UserError:
            raise
        except Exception as error:
            self._broken.append(f"could not be read to its end ({type(error).__name__}: {error})")

    def batches(self) -> Iterator[Sequence[AnyEvent]]:
        events = iter(self)
        while batch := list(islice(events, _AT_ONCE)):
            yield batch

    def close(self) -> None:
        self._reader.close()


def recognise(path: str) -> FileSource:
    """The source that reads ``path``. Raises :class:`LogError` where none does, or nothing is there."""
    head = _head(path)
    if xlaprof_log.FILE.recognises(path, head):  # nearly every path: the other sources need not be loaded
        return xlaprof_log.FILE
    from . import registry

    known = sorted(registry.file_sources(), key=lambda source: source is not xlaprof_log.FILE)
    for source in known:
        try:
            if source.recognises(path, head):
                return source
        except Exception as error:
            warn(f"the source {source.name} cannot tell what {path} is: {type(error).__name__}: {error}")
    tried = "; ".join(f"{source.name} ({source.looks_for})" for source in known)
    if os.path.isdir(path):
        raise LogError(f"{path} is a directory: name the log file in it (tried: {tried})")
    raise LogError(f"{path} is no recording that xlaprof reads (tried: {tried})")


def _head(path: str) -> bytes:
    if os.path.isdir(path):
        return b""
    with opening(path), open(path, "rb") as file:
        head = file.read(HEAD)
    if not head.startswith(b"\x1f\x8b"):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, HEAD)
    except zlib.error:
        return head
