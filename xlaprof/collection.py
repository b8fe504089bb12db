"""Memory of long work: garbage collection, which finds none, and what is freed."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_KEPT = 256 << 20  # bytes
_ALL_S = 600.0  # between two searches of all that is alive
_NEW = 20_000  # objects that a search is worth: it takes a millisecond
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's names for what mallopt() sets


@contextmanager
def no_collection() -> Iterator[None]:
    """Without garbage collection: imports and millions of events leave no cycles, and the search takes 5 % of the time.

    Also decorates a function.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def in_small_parts(clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[], None]]:
    """Garbage collection for a program that has to answer at any moment; to be called again and again within.

    Python's own searches all that is alive now and then: hundreds of thousands of objects of a recording, a quarter of
    a second in which no thread does anything. This one searches what was made since the last time, and leaves out from
    then on what outlived it. What becomes garbage after that, in a cycle, is found once in ten minutes.
    """
    enabled, due = gc.isenabled(), clock() + _ALL_S
    gc.disable()
    gc.freeze()

    def search() -> None:
        nonlocal due
        whole = clock() >= due
        if whole:
            gc.unfreeze()
            due = clock() + _ALL_S
        if whole or gc.get_count()[0] >= _NEW:
            gc.collect()
            gc.freeze()

    try:
        yield search
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()


def keep_memory() -> None:
    """What is freed is used again, not given back to the system: the next batch of a long recording asks for as much.

    For processes of our own only. Where the C library is not glibc nothing happens.
    """
    import ctypes  # numpy needs it, too

    if os.name != "posix":
        return
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, 32 << 20)  # the most that it takes
        mallopt(_TRIM_THRESHOLD, _KEPT)
