"""Print the reason where C++ is about to abort the process.

Where ranks exchange values of different sizes, gloo throws in a thread of its own, where nobody can catch it, and C++'s
terminate handler aborts the process without naming anything of the program. Our handler runs before: it reports to the
coordinator which program this rank runs, waits for the verdict, and ends the process with that.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from . import faults
from .link import Link

#: s that the verdict may take
VERDICT_S = 5.0

_kept: list[Any] = []  # C++ points to these


def install(link: Link) -> None:
    """Make this process end with a verdict where C++ would abort it. Does nothing with another C++ library."""
    try:
        set_terminate = ctypes.CDLL("libstdc++.so.6")._ZSt13set_terminatePFvvE
    except (OSError, AttributeError):
        return
    set_terminate.argtypes = [ctypes.c_void_p]
    set_terminate.restype = ctypes.c_void_p
    before: Any = None

    def ended() -> None:
        link.report_progress()
        found = link.blame(VERDICT_S) if link.turns else None
        if found is not None:
            faults.end(f"xlaprof: {found[1]}")
        before()  # says what it was, and aborts
        os._exit(faults.EXIT_CODE)

    handler = ctypes.CFUNCTYPE(None)(ended)
    before = ctypes.CFUNCTYPE(None)(set_terminate(ctypes.cast(handler, ctypes.c_void_p)))
    _kept.extend((handler, before))
