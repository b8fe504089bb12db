"""Step closures: functions called after the next barrier, which computes all the values they read at once.

Closures run in the order in which they were added, after the barrier's graph was handed over. Those added with
``run_async`` run on another thread, in order too, so that the program does not wait for the device. Their errors are
raised by the next barrier, or printed at exit.
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

#: limit of batches of closures that wait for the thread; past it a barrier waits too
_WAITING = 100

_lock = threading.Lock()
_next: list[Closure] = []
_next_async: list[Closure] = []


def add_step_closure(closure: Callable[..., Any], args: Sequence[Any] = (), run_async: bool = False) -> None:
    """Have ``closure(*args)`` called at the next barrier; with ``run_async``, on another thread.

    Reading a tensor there needs no execution of its own: the barrier computes it with all others. Errors of the closure
    are raised by that barrier; with ``run_async``, by a later one. A closure added by a closure runs at the next
    barrier. PyTorch/XLA's ``xm.add_step_closure``.
    """
    if not callable(closure):
        raise TypeError(f"a step closure is something to be called, not {type(closure).__name__}")
    with _lock:
        (_next_async if run_async else _next).append(lambda: closure(*args))


def run() -> None:
    """At a barrier: call the closures that were added. Raises the first error, after all have been called."""
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
    """Runs batches of closures in order, on a thread that starts with the first."""

    def __init__(self) -> None:
        self._batches: queue.Queue[list[Closure] | None] = queue.Queue(_WAITING)
        self._thread: threading.Thread | None = None
        self.errors: list[Exception] = []

    def run_all(self, closures: list[Closure]) -> None:
        """Queue ``closures`` for the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="xlaprof-closures", daemon=True)
            self._thread.start()
            atexit.register(self.finish)
        self._batches.put(closures)

    def error(self) -> Exception | None:
        """Take the first error that was not raised yet."""
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
        """At exit: run the remaining closures, and print errors that were not raised."""
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
