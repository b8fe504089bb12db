"""When a rank fails, the others stop, with an error that names it.

The error is raised where this rank waits for others: in a meeting, or in a read whose collective failed. Elsewhere it
is raised in the main thread, wherever that is. If that thread is held in C++ by a collective that never ends, the error
is printed and the process ends.

Where ranks exchange values of different sizes, gloo throws in a thread of its own, where nobody can catch it, and C++'s
terminate handler aborts the process without naming anything of the program. Our handler runs before: it reports to the
coordinator which program this rank runs, waits for the verdict, and ends the process with that.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from xlaprof.errors import warn

if TYPE_CHECKING:
    from .link import Link

#: exit code of a rank that had to be ended because another failed
EXIT_CODE = 75
#: s in which the coordinator notices who caused a failed collective
BLAME_S = 12.0
#: s that the verdict may take where C++ is about to abort
VERDICT_S = 5.0
#: s for the rank's wait to raise the error, then for the main thread to raise it, then for what runs after the program
NOTICE_S, RAISE_S, WIND_UP_S = 2.0, 2.0, 3.0

#: asks the coordinator, for at most so many s, who caused a failure; set while this rank is connected to it
blame: Callable[[float], tuple[int, str] | None] | None = None

#: file in which a launched rank leaves, pickled, the error that ended it
error_file = ""

_verdict: tuple[int, str] | None = None
_raised = threading.Event()
_kept: list[Any] = []  # C++ points to these


class RankFailure(RuntimeError):
    """Another rank failed: ``rank``, as far as known; the message says how it was noticed."""

    rank: int

    def __init__(self, why: str = "", rank: int = -1) -> None:
        if not why and _verdict is not None:  # raised from another thread, without arguments
            rank, why = _verdict
        super().__init__(why)
        self.rank = rank
        _raised.set()


def verdict() -> RankFailure | None:
    """The failure of this world, to be raised; ``None`` while there is none."""
    return RankFailure(_verdict[1], _verdict[0]) if _verdict is not None else None


def of_collective(error: BaseException) -> RankFailure | None:
    """The failure of another rank behind ``error``, which ended a program on the device; ``None`` if none is."""
    if isinstance(error, RankFailure):
        return error
    if blame is None or not (_verdict or "gloo" in str(error).lower()):
        return None
    found = blame(BLAME_S)
    if found is None:
        return RankFailure(f"a collective failed, and no rank is known to be the cause: {str(error).splitlines()[0]}")
    return RankFailure(found[1], found[0])


def on_verdict(rank: int, why: str) -> None:
    """Stop this rank: the world has failed."""
    global _verdict
    if _verdict is None:
        _verdict = (rank, why)
        threading.Thread(target=_stop, args=(why,), name="xlaprof-stop", daemon=True).start()


def _stop(why: str) -> None:
    main = threading.main_thread()
    if not _raised.wait(NOTICE_S):
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main.ident or 0), ctypes.py_object(RankFailure))
        if not _raised.wait(RAISE_S):
            end(why)
    main.join()
    # The program has ended; whatever still waits for the device would wait for the failed rank for ever.
    threading.Event().wait(WIND_UP_S)
    end()


def end(message: str = "") -> None:
    """Close the recording and end this process with :data:`EXIT_CODE`."""
    if message:
        warn(message)
        if error_file:
            with contextlib.suppress(OSError), open(error_file, "wb") as file:
                pickle.dump(f"{RankFailure.__module__}.{RankFailure.__name__}: {message}\n", file)
    recorder = sys.modules.get("xlaprof.recording.recorder")
    if recorder is not None and recorder.active is not None:
        with contextlib.suppress(Exception):
            recorder.stop_recording()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(EXIT_CODE)


def before_abort(link: Link) -> None:
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
            end(f"xlaprof: {found[1]}")
        before()  # says what it was, and aborts
        os._exit(EXIT_CODE)

    handler = ctypes.CFUNCTYPE(None)(ended)
    before = ctypes.CFUNCTYPE(None)(set_terminate(ctypes.cast(handler, ctypes.c_void_p)))
    _kept.extend((handler, before))
