"""The file under a recording: its name, its lock, its header, and what happens when the disk is full or the file gone.

Bytes that cannot be written are kept for another try. When too many wait, events are dropped and counted, but never
half a line, nor a line that defines an id: the file stays readable whatever happens. A file that was deleted or cut
off (logrotate's ``copytruncate``) is begun again, and what it held is counted as dropped.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import time
from collections.abc import Callable

import msgspec

from xlaprof.bounds import LONGEST, bounded
from xlaprof.errors import warn
from xlaprof.events import SCHEMA, Dropped, Event, Header
from xlaprof.version import __version__

from .code_folder import folder_of

try:
    import fcntl
except ImportError:  # Windows: a second writer is not noticed there
    fcntl = None  # type: ignore[assignment]

#: who may read a log: it holds the program's arguments, its paths and lines of its code
MODE = 0o600
#: how each log begins
_BEGINS = b'{"k":"header"'
_END = b'{"k":"end"'
#: bytes kept for another try before events are shed
BACKLOG = 1 << 20
RETRY_NS = 500_000_000

#: lines that are never shed: those that others refer to, and those about the recording itself
_KEPT = tuple(b'{"k":"%s"' % kind for kind in (b"header", b"text", b"stack", b"thread", b"dropped", b"end"))

_encode = msgspec.json.Encoder().encode


def private(path: str, flags: int, mode: int = MODE) -> int:
    """An opener for what is made of a log: with ``mode``, also where the file was there with another."""
    fd = os.open(path, flags, mode)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        os.fchmod(fd, mode)
    return fd


class Foreign(OSError):
    """The file holds something that no recording wrote."""


class LogFile:
    """An open log, written by one thread. Raises OSError with a readable ``strerror`` if it cannot be opened.

    A file that holds anything but a recording is replaced only with ``force``; else :class:`Foreign` is raised.
    ``mode``: its permissions.
    """

    def __init__(self, path: str, overwrite: bool = True, force: bool = False, mode: int = MODE) -> None:
        self.path = path
        self.trouble = ""  # the system's error while writing fails
        self.why = ""  # the last such error
        self.lost = 0  # events shed and not reported in the log yet
        self.lost_ever = 0
        self._buffer = bytearray()
        self._torn = False  # the buffer begins inside a line
        self._retry_at = 0
        self._mode = mode
        self._header = b""
        self._size = 0  # bytes written
        self._lines = 0  # written
        self._fd = self._open(0 if overwrite else os.O_EXCL)
        try:
            if self._is_file and not force and os.fstat(self._fd).st_size and not _is_log(path):
                raise Foreign(errno.EEXIST, "it is not a recording")
            if self._is_file:
                os.ftruncate(self._fd, 0)
                os.fchmod(self._fd, mode)
        except BaseException:
            os.close(self._fd)
            raise

    def _open(self, flags: int) -> int:
        # not O_TRUNC: another writer of this file must be noticed first
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, self._mode)
        try:
            if fcntl is not None:
                _lock(fd)
            self._is_file = stat.S_ISREG(os.fstat(fd).st_mode)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def begin(self, header: Header) -> None:
        """Write the header, at once: a program that is killed a moment later leaves a log that can be read."""
        self._header = _own[self.path] = line(header)
        self.append(self._header)
        self.flush()

    def begin_again(self, definitions: Callable[[], bytes]) -> str:
        """Where the file was deleted or cut off, begin it again, with the ids that ``definitions`` defines.

        Returns what happened: "" (nothing), "deleted" or "truncated". What was in the file is counted as dropped.
        """
        if not self._is_file or not self._header:
            return ""
        try:
            there = os.fstat(self._fd)
            what = "deleted" if there.st_nlink == 0 else "truncated" if there.st_size < self._size else ""
            if not what or self.trouble:
                return ""
            if what == "deleted":
                fd = self._open(os.O_EXCL)
                os.close(self._fd)
                self._fd = fd
            self._cut(0)
        except OSError as error:  # its folder is gone, or another file is in its place
            self._fail(error)
            return ""
        begin = self._buffer.find(b"\n") + 1 if self._torn else 0  # the rest of a line is of no use alone
        del self._buffer[:begin]
        again = self._header + definitions()
        waiting = sum(text.startswith(_KEPT) for text in self._buffer.splitlines())
        lost = self._lines + (begin > 0) - (again.count(b"\n") - waiting)  # ids are not lost: they are defined again
        self._lines, self._size, self._torn = 0, 0, False
        self._buffer[:0] = again + line(Dropped(time.perf_counter_ns(), max(lost, 0), what))
        return what

    def append(self, lines: bytes) -> None:
        """Take whole lines for the next :meth:`flush`."""
        self._buffer += lines

    @property
    def waiting(self) -> int:
        """Bytes not written yet."""
        return len(self._buffer)

    def flush(self, force: bool = False) -> bool:
        """Write what waits. False where the system refused; ``trouble`` then says why. Never raises."""
        if self.trouble and not force and time.perf_counter_ns() < self._retry_at:
            self._shed(BACKLOG)
            return False
        if not self._write_out():
            self._shed(BACKLOG)
            return False
        self.trouble = ""
        if self.lost:
            self._buffer += self._dropped(self.lost)
            self.lost = 0
            return self._write_out()
        return True

    def close(self) -> None:
        with contextlib.suppress(OSError):  # NFS may repeat the error of the last write, which is reported already
            os.close(self._fd)

    def _write_out(self) -> bool:
        buffer = self._buffer
        while buffer:
            try:
                written = os.write(self._fd, buffer)
            except OSError as error:
                self._fail(error)
                return False
            self._torn = buffer[written - 1] != _NEWLINE
            self._size += written
            self._lines += buffer.count(b"\n", 0, written)
            del buffer[:written]
        return True

    def _fail(self, error: OSError) -> None:
        self.trouble = self.why = error.strerror or str(error)
        self._retry_at = time.perf_counter_ns() + RETRY_NS

    def give_up(self) -> None:
        """What could not be written to the end is counted, and the log says so: its last lines make room for that."""
        if not self._buffer:
            return
        if not self._is_file:
            self._shed(0)
            return
        try:
            self._last_words()
        except OSError as error:  # not even in the place of other lines
            self._fail(error)
            self._shed(0)

    def _last_words(self) -> None:
        # Lines refer to earlier ones only: without its last lines a log is as readable as before.
        ends = [text for text in self._buffer.splitlines(keepends=True) if text.startswith(_END)]
        waiting = self._buffer.count(b"\n") - len(ends)
        room = len(self._dropped(10**9)) + len(b"".join(ends))
        with open(self.path, "rb") as file:
            begin = file.seek(max(self._size - room - BACKLOG, 0))
            tail = file.read(self._size - begin)
        cut = tail.rfind(b"\n", 0, max(len(tail) - room, 0)) + 1
        if not cut:  # the log is hardly begun
            raise OSError(errno.ENOSPC, self.why)
        self._cut(begin + cut)
        lost = waiting + tail.count(b"\n", cut)
        self.lost += lost
        self.lost_ever += lost
        self._buffer[:] = self._dropped(self.lost) + b"".join(ends)
        self._torn = False
        if not self._write_out():
            raise OSError(errno.ENOSPC, self.why)

    def _cut(self, size: int) -> None:
        """Leave the first ``size`` bytes of the file, and go on writing behind them."""
        os.ftruncate(self._fd, size)
        os.lseek(self._fd, size, os.SEEK_SET)

    def _dropped(self, count: int) -> bytes:
        return line(Dropped(time.perf_counter_ns(), count, "disk", self.why))

    def _shed(self, keep: int) -> None:
        if len(self._buffer) <= keep:
            return
        kept = bytearray()
        dropped = 0
        for number, text in enumerate(self._buffer.splitlines(keepends=True)):
            if (number == 0 and self._torn) or text.startswith(_KEPT):
                kept += text
            else:
                dropped += 1
        self._buffer = kept
        self.lost += dropped
        self.lost_ever += dropped


def open_log(path: str, overwrite: bool, force: bool, mode: int) -> LogFile:
    """The log at ``path``, or the first free one beside it (``run.2.log``) where another process records into it.

    An earlier recording of this process is kept under another name (``run.1.log``).
    """
    with contextlib.suppress(BlockingIOError):
        if overwrite:
            _keep_own(path)
        return LogFile(path, overwrite, force, mode)
    root, extension = os.path.splitext(path)
    number = 2
    while True:
        beside = f"{root}.{number}{extension}"
        with contextlib.suppress(BlockingIOError, FileExistsError):
            log = LogFile(beside, False, force, mode)
            warn(f"another process is recording into {path}: this one records into {beside}")
            return log
        number += 1


#: the recordings of this process: path -> how the log begins
_own: dict[str, bytes] = {}


def _keep_own(path: str) -> None:
    """Where ``path`` holds a recording of this process, give that the first free name beside it, and say so."""
    begins = _own.get(path)
    if begins is None or not os.path.isfile(path):
        return
    with open(path, "rb") as file:
        if file.read(len(begins)) != begins:
            return
    root, extension = os.path.splitext(path)
    number = 1
    while os.path.lexists(kept := f"{root}.{number}{extension}") or os.path.lexists(folder_of(kept)):
        number += 1
    os.rename(path, kept)
    with contextlib.suppress(OSError):  # it has none, mostly
        os.rename(folder_of(path), folder_of(kept))
    warn(f"{path} is recorded anew: the earlier recording of this process is now {kept}")


_NEWLINE = 0x0A


def line(event: Event) -> bytes:
    """``event`` as a line, its texts and lists cut where they are too long."""
    encoded = _encode(event)
    if len(encoded) > LONGEST:
        encoded = _encode(bounded(msgspec.to_builtins(event)))
    return encoded + b"\n"


def has_long_line(lines: bytes) -> bool:
    """Whether a line may be longer than a text may be: then some part of half that length holds no line feed."""
    half = LONGEST // 2
    return any(lines.find(b"\n", at, at + half) < 0 for at in range(0, len(lines) - half + 1, half))


def refusal(path: str, error: OSError | ValueError) -> str:
    """Why no recording can be written to ``path``, and the way out."""
    if isinstance(error, Foreign):
        return f"{path} is not a recording: choose another file, or have it replaced with --force (force=True)"
    if isinstance(error, FileExistsError):
        return f"file already exists, will not overwrite without overwrite=True: {path}"
    return f"cannot record into {path!r}: {getattr(error, 'strerror', None) or error}"


def _is_log(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(_BEGINS)) == _BEGINS
    except OSError:  # what cannot be read may be anything
        return False


def _lock(fd: int) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # other errors: a file system without locks, where a second writer goes unnoticed
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise BlockingIOError(error.errno, "another process is recording into it") from None


_spawned = (0, 1)  # what this process was started as


def be_rank(rank: int, world: int) -> None:
    """Say which rank this process is, of how many, where the environment does not."""
    global _spawned
    _spawned = rank, world


def rank_and_world() -> tuple[int, int]:
    """This process's rank and the number of processes, as torchrun, mpirun or who started it says; else (0, 1)."""
    for rank, world in (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")):
        try:
            found = int(os.environ[rank]), int(os.environ[world])
        except (KeyError, ValueError):
            continue
        if 0 <= found[0] < found[1]:
            return found
    return _spawned


def rank_path(path: str, rank: int, world: int) -> str:
    """The file of a rank: ``{rank}`` in the path is replaced; without it each of several ranks gets its own suffix."""
    if "{rank}" in path:
        return path.replace("{rank}", str(rank))
    if world <= 1:
        return path
    root, extension = os.path.splitext(path)
    return f"{root}.rank{rank}{extension}"


def header(rank: int, world: int) -> Header:
    """The header of this process's recording. Package versions are read without importing the packages."""
    import platform
    from importlib import metadata

    versions = {"xlaprof": __version__, "python": platform.python_version()}
    for package in ("torch", "jax", "jaxlib"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return Header(
        schema=SCHEMA,
        pid=os.getpid(),
        mono_ns=time.perf_counter_ns(),
        unix_ns=time.time_ns(),
        host=platform.node(),
        rank=rank,
        world=world,
        argv=list(sys.argv),
        cwd=_cwd(),
        versions=versions,
    )


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:  # the directory was deleted under us
        return ""
