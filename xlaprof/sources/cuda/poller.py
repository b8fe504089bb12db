"""The part written in C (``poll.c``): compiled when a GPU is first watched, by the compiler that Triton needs, too."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple

#: between two readings of a device. On an H200 a reading held a step of small kernels up by 40 to 70 us on average
PAUSE_NS, LONGEST_NS = 5_000_000, 20_000_000
_ROOM = 1 << 16  # changes kept for whoever takes them: a minute's
_SOURCE = Path(__file__).with_name("poll.c")
_COMPILERS = ("cc", "gcc", "clang")


class Unwatched(Exception):
    """The device cannot be watched; the message says why."""


class Change(NamedTuple):
    """From ``at`` (ns) on the device was busy, or idle."""

    at: int
    busy: bool


class _Watch(ctypes.Structure):
    """As in ``poll.c``."""

    _fields_ = (
        ("query", ctypes.c_void_p),
        ("capturing", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
        ("pause", ctypes.c_int64),
        ("longest", ctypes.c_int64),
        ("read_at", ctypes.c_int64),
        ("state", ctypes.c_int64),
        ("written", ctypes.c_uint64),
        ("room", ctypes.c_uint64),
        ("changes", ctypes.POINTER(ctypes.c_int64)),
        ("code", ctypes.c_int32),
        ("over", ctypes.c_int32),
        ("gate", ctypes.c_int32),
    )


def compiled() -> str:
    """The machine code of ``poll.c``, as a shared library in a folder of its own, which the caller removes.

    Raises :class:`Unwatched` where there is no compiler.
    """
    command = shlex.split(os.environ.get("CC", "")) or [next(filter(shutil.which, _COMPILERS), "")]
    if not command[0]:
        raise Unwatched(f"it takes a C compiler ({', '.join(_COMPILERS)}, or what CC says), and none is found")
    folder = tempfile.mkdtemp(prefix="xlaprof-")
    library = os.path.join(folder, "poll.so")
    try:
        # Python 3.11's subprocess does not call the program's fork handlers either
        done = subprocess.run(
            [*command, "-shared", "-fPIC", "-O1", "-o", library, str(_SOURCE)],
            capture_output=True, text=True, errors="replace", timeout=60, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise Unwatched(f"{command[0]} does not run: {error}") from None
    if done.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        said = (done.stderr.splitlines() or ["it says nothing"])[0]
        raise Unwatched(f"{command[0]} does not compile {_SOURCE}: {said}")
    return library


def loaded() -> tuple[Any, Any]:
    """The library, for calls that let other threads run Python meanwhile, and for calls that do not."""
    library = compiled()
    try:
        return ctypes.CDLL(library), ctypes.PyDLL(library)
    except OSError as error:
        raise Unwatched(str(error)) from None
    finally:
        shutil.rmtree(os.path.dirname(library), ignore_errors=True)  # what is loaded stays


class Poller:
    """Of one device: :meth:`run` asks it, in a thread of its own, and other threads see what it found."""

    def __init__(self, library: tuple[Any, Any], query: int, capturing: int, stream: int) -> None:
        """``query`` and ``capturing``: addresses of ``cudaStreamQuery`` and ``cudaStreamIsCapturing``."""
        self._free, self._held = library
        self._free.sleep_until.restype = ctypes.c_int64
        self._changes = (ctypes.c_int64 * _ROOM)()
        self._watch = _Watch(query, capturing, stream, PAUSE_NS, LONGEST_NS, room=_ROOM, changes=self._changes)
        self._here = ctypes.byref(self._watch)
        self._taken = 0
        self._after = perf_counter_ns()
        _pollers.add(self)

    def run(self) -> None:
        """Ask until :meth:`end`, or an error of the device."""
        self._free.watch_device(self._here)

    def end(self) -> None:
        self._watch.over = 1

    @property
    def code(self) -> int:
        """CUDA's error, which has ended the watch; 0: none."""
        return int(self._watch.code)

    @property
    def read_at(self) -> int:
        """ns: when the device was asked last."""
        return int(self._watch.read_at)

    @property
    def state(self) -> Change | None:
        """The present state, and since when; None: it is not known yet."""
        state = int(self._watch.state)
        return Change(state >> 1, bool(state & 1)) if state else None

    def take(self) -> Iterator[Change]:
        """The changes since the last call. Of more than are kept the last."""
        written = int(self._watch.written)
        for number in range(max(self._taken, written - _ROOM), written):
            change = self._changes[number % _ROOM]
            yield Change(change >> 1, bool(change & 1))
        self._taken = written

    def sleep(self, until: int, idle: int) -> int:
        """Sleep until the device has been idle for ``idle`` ns, or until the moment ``until``: when that was, ns.

        The calling thread then needs the interpreter's lock, and may have to wait for it.
        """
        return int(self._free.sleep_until(self._here, ctypes.c_int64(until), ctypes.c_int64(idle)))

    def hold(self) -> None:
        """Ask nothing until :meth:`let_go`."""
        self._held.hold(self._here)

    def let_go(self) -> None:
        self._held.let_go(self._here)


#: a child process is a copy of this one at a moment at which nothing is asked: CUDA may hold locks meanwhile
_pollers: weakref.WeakSet[Poller] = weakref.WeakSet()
_holding: list[Poller] = []


def _before_fork() -> None:
    _holding[:] = _pollers
    for one in _holding:
        one.hold()


def _after_fork() -> None:
    while _holding:
        _holding.pop().let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def in_thread(call: Callable[[], None], name: str) -> threading.Thread:
    """Start a thread of ours."""
    thread = threading.Thread(target=call, name=f"xlaprof {name}", daemon=True)
    thread.start()
    return thread
