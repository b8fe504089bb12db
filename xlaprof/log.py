"""Read a ``run.log``: a whole one, or one that still grows.

Nothing in a file makes a reader crash: lines that are no events are skipped, counted and reported in ``notes``. So are
events with values that cannot be (``xlaprof.bounds``); texts and lists that are too long are cut. Only a file
without a header is an error, :class:`LogError`.
"""

from __future__ import annotations

import contextlib
import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Sequence
from io import BufferedReader
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, Union

import msgspec

from xlaprof.bounds import LONGEST, bounded
from xlaprof.errors import UserError
from xlaprof.text.quantities import plural
from xlaprof.text.strings import printable

from .columns import LONG, gathered, has_numpy
from .events import SCHEMA, AnyEvent, Header, kinds

if TYPE_CHECKING:
    from gzip import GzipFile

    from .columns.reader import LineReader

#: bytes read at a time: few enough that their events are still in the processor's cache when they are analysed
CHUNK = 1 << 18
#: and where they are read as columns, some of which are a few thousand numbers long
_CHUNK_OF_COLUMNS = 1 << 21
#: a longer line is skipped
LONGEST_LINE = 16 << 20
#: bytes compared to notice that another file has taken the place of the one followed
_FINGERPRINT = 256

Path = str | os.PathLike[str]


class LogError(UserError):
    """A recording that cannot be read. One line: which file, and what is wrong with it."""


class Reader(Protocol):
    """The events of one recording, in order, once."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what could not be read; complete when the events have ended."""

    def __iter__(self) -> Iterator[AnyEvent]: ...

    def close(self) -> None: ...


class Recording(Reader, Protocol):
    """A reader whose events can be had many at once."""

    def batches(self) -> Iterator[Sequence[AnyEvent]]:
        """The events: instead of iterating over them one by one."""


class Follower(Protocol):
    """The events of a recording that grows."""

    @property
    def header(self) -> Header | None:
        """Another object than before means another recording: the analysis starts over."""

    @property
    def notes(self) -> tuple[str, ...]: ...

    def poll(self, limit: int = ..., /) -> Sequence[AnyEvent]:
        """Events that came since the last call, out of at most about ``limit`` bytes. Never waits."""

    def close(self) -> None: ...


class Lines:
    """Bytes to events: the state of reading one log. Chunks may end anywhere; whole lines come out as events."""

    def __init__(self, columns: bool = False) -> None:
        self.header: Header | None = None
        self.columns = columns  # many lines at once are read as columns, where numpy is installed
        self.events = 0
        self.garbage = 0  # lines that are not JSON or not an event
        self.refused: dict[str, int] = {}  # kinds of events with values that cannot be -> lines
        self.cut = 0  # events with texts or lists that were too long
        self.amiss: list[str] = []  # fields of the header with values that cannot be
        self.unknown: dict[str, int] = {}  # kinds that this version does not know -> lines
        self.torn = 0  # bytes of a last line that has not ended
        self._parts: list[bytes] = []  # of that line
        self._skipping = False  # it is too long to keep
        self._reader: LineReader | None = None  # of columns

    def feed(self, data: bytes) -> Sequence[AnyEvent]:
        first = data.find(b"\n") + 1
        if not first:
            self._keep(data)
            return []
        cut = data.rfind(b"\n") + 1
        if self._skipping:
            self.garbage += 1
            whole = data[first:cut]
        else:
            whole = b"".join((*self._parts, data[:cut]))
        self._forget()
        self._keep(data[cut:])
        events = self._columns(whole) if self.columns and len(whole) >= CHUNK else self._decode(whole)
        self.events += len(events)
        return events

    def take(self, event: AnyEvent) -> Sequence[AnyEvent]:
        """An event that was not read from lines, as if it had been."""
        try:
            return self.feed(msgspec.json.encode(event) + b"\n")
        except (OverflowError, ValueError, TypeError):  # an integer or a text that JSON cannot hold
            self._count(self.refused, str(event.__struct_config__.tag))
            return []

    def finish(self) -> list[AnyEvent]:
        """The last line, if only its line feed is missing."""
        if self._skipping or not self.torn:
            return []
        event = self._decode_line(b"".join(self._parts), judge=False)
        if event is None:
            return []
        self._forget()
        self.events += 1
        return [event]

    @property
    def skipped(self) -> int:
        """Lines that were damaged: they may have been events of any kind."""
        return self.garbage + sum(self.refused.values())

    def notes(self) -> list[str]:
        """Sentences about what was left out, and why."""
        notes = []
        if self.header is not None and self.header.schema > SCHEMA:
            notes.append(
                f"written by a newer xlaprof (schema {self.header.schema}, this one reads {SCHEMA}): "
                "what it does not know is left out"
            )
        if self.unknown:
            notes.append(f"skipped {_each(self.unknown)} of unknown kinds: {_told(self.unknown)}")
        if self.garbage:
            notes.append(f"skipped {self.garbage} {'line that is' if self.garbage == 1 else 'lines that are'} no event")
        if self.refused:
            notes.append(f"skipped {_each(self.refused)} with values that cannot be: {_told(self.refused)}")
        if self.amiss:
            notes.append(f"left out of its header, as they cannot be: {', '.join(self.amiss)}")
        if self.cut:
            notes.append(f"cut texts or lists of over {LONGEST:,} characters or entries in {plural(self.cut, 'event')}")
        if self.torn:
            notes.append(
                f"the last line is torn ({self.torn} bytes, skipped): "
                "the program was killed in the middle of it, or is still writing"
            )
        return notes

    def _keep(self, part: bytes) -> None:
        self.torn += len(part)
        if self.torn > LONGEST_LINE:
            self._skipping = True
            self._parts.clear()
        elif part and not self._skipping:
            self._parts.append(part)

    def _forget(self) -> None:
        self._parts.clear()
        self.torn = 0
        self._skipping = False

    def _decode(self, whole: bytes) -> list[AnyEvent]:
        events: list[AnyEvent]
        try:
            events = _decoder.decode_lines(whole)
        except _UNREADABLE:
            found = (self._decode_line(line) for line in whole.split(b"\n"))
            events = [event for event in found if event is not None]
        if self.header is None and events and isinstance(events[0], Header):
            self.header = events[0]
        return events

    def _columns(self, whole: bytes) -> Sequence[AnyEvent]:
        if self.header is None or not has_numpy():
            return self._decode(whole)
        if self._reader is None:
            from .columns.reader import LineReader  # imports numpy

            self._reader = LineReader(_decoder, self._decode)
        return self._reader.read(whole)

    def _decode_line(self, line: bytes, judge: bool = True) -> AnyEvent | None:
        if not line.strip():
            return None
        try:
            return _decoder.decode(line)
        except _UNREADABLE:
            pass
        event = _shortened(line) if len(line) > LONGEST else None
        if event is not None:
            self.cut += 1
        elif self.header is None and not self.events and (mended := _readable_header(line)):
            event, self.amiss = mended
        elif judge:
            self._judge(line)
        return event

    def _judge(self, line: bytes) -> None:
        """Count a line that did not decode: an unknown kind, a value that cannot be, or no event at all."""
        try:
            kind = _kind_decoder.decode(line).k[:40]
        except _UNREADABLE:
            kind = ""
        self._count(self.refused if kind in _KINDS else self.unknown, kind)

    def _count(self, known: dict[str, int], kind: str) -> None:
        if kind and (kind in known or len(known) < 100):
            known[kind] = known.get(kind, 0) + 1
        else:
            self.garbage += 1


def _shortened(line: bytes) -> AnyEvent | None:
    """The event of a line that is one once its texts and lists are cut."""
    try:
        return _decoder.decode(msgspec.json.encode(bounded(msgspec.json.decode(line))))
    except _UNREADABLE:
        return None


def _readable_header(line: bytes) -> tuple[Header, list[str]] | None:
    """The header of a line with values that cannot be, and the names of those fields: what they say is not known."""
    try:
        said = msgspec.json.decode(line)
    except _UNREADABLE:
        return None
    if not isinstance(said, dict) or said.get("k") != "header":
        return None
    fields: dict[str, Any] = {"schema": SCHEMA, "pid": 0, "mono_ns": 0, "unix_ns": -1}
    amiss = []
    for field in msgspec.structs.fields(Header):
        if field.encode_name in said:
            try:
                fields[field.name] = msgspec.convert(said[field.encode_name], field.type)
            except msgspec.MsgspecError:
                amiss.append(field.name)
        elif field.required:
            amiss.append(field.name)
    return Header(**fields), amiss


def _each(kinds: dict[str, int]) -> str:
    return plural(sum(kinds.values()), "event")


def _told(kinds: dict[str, int]) -> str:
    return ", ".join(f"{kind} ({count})" for kind, count in sorted(kinds.items()))


class _Kind(msgspec.Struct):
    """The part of a line that names its kind."""

    k: str = ""


_KINDS = kinds()
_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(Union[tuple(_KINDS.values())])  # noqa: UP007
_kind_decoder = msgspec.json.Decoder(_Kind)
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)


class LogReader:
    """Iterates over the events of a log (plain or gzip), once. ``notes`` is complete when that has ended.

    Raises :class:`LogError` when made if there is no log to read at ``path``.
    """

    def __init__(self, path: Path) -> None:
        self.path = os.fspath(path)
        self._lines = Lines()
        self._broken = ""  # why reading stopped before the end
        self._file = _open(self.path)
        self._first = self._begin()

    @property
    def header(self) -> Header:
        header = self._lines.header
        assert header is not None  # _begin() saw to it
        return header

    @property
    def notes(self) -> tuple[str, ...]:
        broken = [f"could not be read to its end ({self._broken})"] if self._broken else []
        return (*self._lines.notes(), *broken)

    @property
    def skipped(self) -> int:
        """Lines that were damaged, so far; complete at the end."""
        return self._lines.skipped

    def close(self) -> None:
        """Needed only where the events are not read to the end."""
        self._file.close()

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[AnyEvent]:
        return chain.from_iterable(self._batches(self._pieces()))

    def batches(self) -> Iterator[Sequence[AnyEvent]]:
        """The events, many at once; of a long log they are decoded only when they are asked for."""
        self._lines.columns = os.path.getsize(self.path) > LONG
        pieces = gathered(self._pieces(), _CHUNK_OF_COLUMNS) if self._lines.columns else self._pieces()
        yield from self._batches(pieces)

    def _pieces(self) -> Iterator[bytes]:
        while chunk := self._read():
            yield chunk

    def _batches(self, pieces: Iterable[bytes]) -> Iterator[Sequence[AnyEvent]]:
        with self._file:
            yield self._first
            self._first = []
            yield from map(self._lines.feed, pieces)
            yield self._lines.finish()

    def _begin(self) -> Sequence[AnyEvent]:
        """The events of the first chunks, up to the one that holds the header."""
        size = 0
        events: Sequence[AnyEvent] = []
        try:
            while not events and (chunk := self._read()):
                size += len(chunk)
                events = self._lines.feed(chunk)
                if not events and self._lines.garbage:
                    break
            if not events:
                events = self._lines.finish()
            if self._lines.header is None:
                if events and isinstance(events[0], Header):
                    self._lines.header = events[0]
                else:
                    raise LogError(self._why_nothing(size, bool(events)))
        except BaseException:
            self._file.close()
            raise
        return events

    def _why_nothing(self, size: int, headless: bool) -> str:
        if self._broken:
            return f"cannot read {self.path}: {self._broken}"
        if not size:
            return f"{self.path} is empty: nothing was recorded into it (yet)"
        if headless:
            return f"{self.path} has no header: its beginning is missing, nothing was read"
        if self._lines.torn and not self._lines.garbage:
            return f"{self.path} ends inside its first line ({size} bytes): nothing could be read"
        return f"{self.path} is not an xlaprof log: its first line is no header, nothing was read"

    def _read(self) -> bytes:
        try:
            return self._file.read1(CHUNK)  # read() returns nothing of a truncated gzip file
        except EOFError:
            self._broken = "the compressed file is truncated"
        except (OSError, zlib.error) as error:
            self._broken = getattr(error, "strerror", None) or str(error)
        return b""


def read(path: Path) -> LogReader:
    """The events of a log, plain or gzip, in the order in which they were recorded; they can be iterated over once.

    Each is a frozen struct, one class for each kind (``xlaprof.events``); times are nanoseconds. ``notes``, complete at
    the end, says what could not be read. Raises :class:`LogError` where there is no log at ``path``.
    """
    return LogReader(path)


@contextlib.contextmanager
def opening(path: str) -> Iterator[None]:
    """What keeps ``path`` from being opened, or read more than once, is a :class:`LogError`."""
    try:
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(path).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise LogError(f"{printable(path)} is a pipe or a device, read once only: put it into a file")
        yield
    except IsADirectoryError:
        raise LogError(f"{path} is a directory: name the log file in it") from None
    except FileNotFoundError:
        raise LogError(f"{path} does not exist: record into it first (xlaprof run -o {path} script.py)") from None
    except (OSError, ValueError) as error:
        raise LogError(f"cannot read {printable(path)}: {getattr(error, 'strerror', None) or error}") from None


def _open(path: str) -> BufferedReader | GzipFile:
    with opening(path):
        with open(path, "rb") as file:
            compressed = file.read(2) == b"\x1f\x8b"
        if not compressed:
            return open(path, "rb")
        from gzip import GzipFile

        return GzipFile(path, "rb")


class Tail:
    """Follows a log that is being written: :meth:`poll` now and then, it never waits.

    A file that does not exist yet, is truncated, or is replaced by another, is read from its beginning: its Header
    comes again, and the analysis starts over.
    """

    def __init__(self, path: Path) -> None:
        self.path = os.fspath(path)
        self._lines = Lines()
        self._file: BinaryIO | None = None
        self._beginning = b""

    @property
    def header(self) -> Header | None:
        return self._lines.header

    @property
    def notes(self) -> tuple[str, ...]:
        """As in :class:`LogReader`, without the note on an unfinished last line, which is normal here."""
        return tuple(note for note in self._lines.notes() if not note.startswith("the last line is torn"))

    def poll(self, limit: int = 8 << 20) -> Sequence[AnyEvent]:
        """Events that became complete since the last call, out of at most about ``limit`` bytes.

        Raises :class:`LogError` where the path is no log or cannot be read; nothing there yet is no error.
        """
        if self._is_another():
            self.close()
        if self._file is None and not self._begin():
            return []
        assert self._file is not None
        self._lines.columns = os.fstat(self._file.fileno()).st_size > LONG
        events: Sequence[AnyEvent] = []
        for piece in gathered(self._pieces(limit), limit if self._lines.columns else 0):
            found = self._lines.feed(piece)
            events = [*events, *found] if events else found
        if self._lines.header is None and (events or self._lines.garbage):
            raise LogError(f"{self.path} is not an xlaprof log: its first line is no header")
        return events

    def _pieces(self, limit: int) -> Iterator[bytes]:
        assert self._file is not None
        while limit > 0 and (piece := self._file.read(min(CHUNK, limit))):
            limit -= len(piece)
            yield piece

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None
        self._lines = Lines()
        self._beginning = b""

    def _begin(self) -> bool:
        if not os.path.exists(self.path):
            return False
        with opening(self.path), contextlib.suppress(FileNotFoundError):
            self._file = open(self.path, "rb", buffering=0)  # noqa: SIM115  # kept open between polls
        if self._file is None:
            return False
        self._beginning = os.pread(self._file.fileno(), _FINGERPRINT, 0)
        return True

    def _is_another(self) -> bool:
        """Whether the path now names another file, or the same one written anew."""
        if self._file is None:
            return False
        ours = os.fstat(self._file.fileno())
        with contextlib.suppress(OSError):  # deleted: reading goes on in the open file
            theirs = os.stat(self.path)
            if (theirs.st_ino, theirs.st_dev) != (ours.st_ino, ours.st_dev):
                return True
        if ours.st_size < self._file.tell():
            return True
        # truncated and grown again between two polls: a header is never the same twice
        beginning = os.pread(self._file.fileno(), _FINGERPRINT, 0)
        if not beginning.startswith(self._beginning):
            return True
        self._beginning = beginning
        return False
