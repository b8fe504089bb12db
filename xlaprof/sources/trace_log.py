"""A listener on PyTorch's structured trace, the logger ``torch.__trace``, for as long as a recording is on.

``torch.compile`` and TorchTPU write into it. With a handler on it torch makes the records, without any it makes none.
Errors in here are counted, written once into the log, and never reach who writes a record. No lock is taken: threads
write side by side, and a fork may come at any time.
"""

from __future__ import annotations

import logging
from time import perf_counter_ns

from xlaprof import events
from xlaprof.recording import recorder

LOGGER = "torch.__trace"


class Listener(logging.Handler):
    """A handler that comes and goes with its recording, and bears what programs do with their loggers meanwhile."""

    def __init__(self, rec: recorder.Recorder, what: str) -> None:
        """``what`` is listened to, as the log names it where something could not be understood."""
        super().__init__()
        self._rec = rec
        self._what = what
        self._was_disabled = self._over = False
        self._failures = 0
        self._failure = ""

    def createLock(self) -> None:
        """None is needed: events are appended, and what is remembered is only looked up."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """As any handler, without filters and the lock."""
        self.emit(record)
        return True

    def join(self) -> bool:
        """Listen, also again after ``set_logs`` or a ``dictConfig`` removed the handler; False once that is over."""
        if self._over or recorder.active is not self._rec:
            return False
        logger = logging.getLogger(LOGGER)
        if self not in logger.handlers:
            logger.addHandler(self)
        if logger.disabled:  # logging.config does that to every logger that it does not name
            self._was_disabled = True
            logger.disabled = False
        return True

    def leave(self) -> None:
        """Leave nothing behind, for good; note in the log how much could not be understood."""
        self._over = True
        logger = logging.getLogger(LOGGER)
        logger.removeHandler(self)
        if self._was_disabled:
            logger.disabled = True
            self._was_disabled = False
        if self._failures:
            self._rec.emit(events.Dropped(perf_counter_ns(), self._failures, self._what, self._failure))
            self._failures = 0

    def fail(self, error: Exception) -> None:
        """Something could not be understood, or went wrong in here."""
        self._failures += 1
        self._failure = self._failure or f"{type(error).__name__}: {error}"[:200]
