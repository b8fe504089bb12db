"""Memory of long work: garbage collection, which finds none, and what is freed."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_KEPT = 256 << 20  # bytes
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
