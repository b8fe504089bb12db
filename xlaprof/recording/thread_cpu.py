"""CPU times of a thread, from Linux's /proc: running, queued for a processor, asleep in a system call.

On other systems nothing is known.
"""

from __future__ import annotations

import os
import platform
from typing import NamedTuple

#: numbers of the futex system calls, by which a thread waits for a lock, the interpreter's among them
_FUTEX = {"x86_64": (202, 449, 454, 455), "aarch64": (98, 422, 449, 454, 455)}.get(platform.machine(), ())


def processors() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Ran(NamedTuple):
    """Totals of a thread's life, ns."""

    running: int
    queued: int  # ready to run, but no processor was free


class ThreadCpu:
    """CPU times of the thread with this native id (``Thread.native_id``)."""

    __slots__ = ("_call", "_fd", "_path")

    def __init__(self, native_id: int | None) -> None:
        self._path = f"/proc/self/task/{native_id}"
        self._fd = _open(f"{self._path}/schedstat")
        self._call: int | None = None  # opened at first use

    def read(self) -> Ran | None:
        """None where the kernel has no answer."""
        if self._fd < 0:
            return None
        try:
            running, queued, *_ = os.pread(self._fd, 100, 0).split()
            return Ran(int(running), int(queued))
        except (OSError, ValueError):  # the thread has ended
            return None

    def sleeps_elsewhere(self) -> bool:
        """Whether the thread is in a system call other than a lock's: a sleep, a file, a socket."""
        if self._call is None:
            self._call = _open(f"{self._path}/syscall")
        try:
            number = os.pread(self._call, 20, 0).split()[0] if self._call >= 0 else b""
        except (OSError, IndexError):  # not permitted here, or the thread has ended: not known
            return False
        return bool(_FUTEX) and number.isdigit() and int(number) not in _FUTEX

    def close(self) -> None:
        for file in (self._fd, self._call):
            if file is not None and file >= 0:
                os.close(file)
        self._fd = self._call = -1


def _open(path: str) -> int:
    """-1 where there is no such file, or no such thread."""
    try:
        return os.open(path, os.O_RDONLY)
    except OSError:
        return -1
