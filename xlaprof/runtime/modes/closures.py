"""Step closures: functions called after the next barrier, which computes all the values they read at once.

Closures run in the order in which they were added, after the barrier's graph was handed over. Those added with
``run_async`` run on a thread, in order too, which waits for the device instead of the program; the error of one is
raised by the next barrier, or printed when the program ends.
"""

from __future__ import annotations

import atexit
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

Closure = Callable[[], Any]

#: batches of closures that wait for the thread before a barrier waits for it too
_WAITING = 100

_lock = threading.Lock()
_next: list[Closure] = []
_next_async: list[Closure] = []


def add_step_closure(closure: Callable[..., Any], args: Sequence[Any] = (), run_async: bool = False) -> None:
    """Have ``closure(*args)`` called at the next barrier, on a thread of its own with ``run_async``.

    Reading a tensor there costs no execution of its own: at the barrier it is computed with all the others. What the
    closure raises is raised by that barrier; with ``run_async``, by one that follows. A closure added by a closure is
    for the barrier after. PyTorch/XLA's ``xm.add_step_closure``.
    """
    if not callable(closure):
        raise TypeError(f"a step closure is something to be called, not {type(closure).__name__}")
    with _lock:
        (_next_async if run_async else _next).append(lambda: closure(*args))


def run() -> None:
    """At a barrier: call what was added. Raises the first error, when all have been called."""
    if not (_next or _next_async or _thread.errors):
        return
    with _lock:
        now, now_async = _next[:], _next_async[:]
        _next.clear()
        _next_async.clear()
    if now_async:
        _thread.run_all(now_async)
    first: Exception | None = None
    for closure in now:
        try:
            closure()
        except Exception as error:
            first = first or error
    first = first or _thread.error()
    if first is not None:
        raise first


class Thread:
    """Runs batches of closures one after the other, on a thread that is made for the first."""

    def __init__(self) -> None:
        self._batches: queue.Queue[list[Closure] | None] = queue.Queue(_WAITING)
        self._thread: threading.Thread | None = None
        self.errors: list[Exception] = []

    def run_all(self, closures: list[Closure]) -> None:
        """Run ``closures`` some time, after those that came before."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="xlaprof-closures", daemon=True)
            self._thread.start()
            atexit.register(self.finish)
        self._batches.put(closures)

    def error(self) -> Exception | None:
        """The first error that was not raised yet."""
        return self.errors.pop(0) if self.errors else None

    def _loop(self) -> None:
        while (batch := self._batches.get()) is not None:
            for closure in batch:
                try:
                    closure()
                except Exception as error:
                    self.errors.append(error)
            self._batches.task_done()

    def join(self) -> None:
        """Return when all closures handed over so far have run."""
        self._batches.join()

    def finish(self) -> None:
        """At exit: the closures that are left are run, and errors that were not raised are printed."""
        if self._thread is not None and self._thread.is_alive():  # it is not in a forked child
            self._batches.put(None)
            self._thread.join()
        for error in self.errors:
            print("an asynchronous step closure failed:", file=sys.stderr)
            traceback.print_exception(error)
        self.errors.clear()


_thread = Thread()


def wait() -> None:
    """Return when all asynchronous closures of the barriers so far have run."""
    _thread.join()
