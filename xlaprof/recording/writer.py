"""The background thread of a recording: takes events from the queue, encodes them, writes them.

It wakes every 60 ms, earlier for events that have been held long enough, and at once for urgent ones: nothing in the
log is more than 60 ms late, but for what the thread has to wait for the interpreter and a processor. A program that
computes in Python waits for each of its turns, which take a quarter of a millisecond. Its errors are counted and
reported, and never reach the program.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from xlaprof.bounds import bounded
from xlaprof.errors import warn
from xlaprof.events import Dropped, End

from .code_folder import CodeFolder, NewCode
from .intern import Interner, NewStack
from .logfile import LogFile, has_long_line, line
from .sampling import DEFINING, HOLD_NS, Sampler, StepOpened

PERIOD_S = HOLD_NS / 1e9
LET_IN_S = 0.020  # the program waits so long for a writer that is late
FLUSH_BYTES = 64 << 10
#: events taken from the queue at a time: between batches the program's threads get the interpreter
BATCH = 2_048


class Writer:
    """Owns the log file and the thread that writes it.

    ``overflowed()`` returns the number of events refused since its last call; ``each_period()`` is called at the end of
    each turn of the thread. ``code`` takes the texts of programs. ``listener``, where one is set, hears of each event
    that is written, in this thread.
    """

    def __init__(
        self,
        file: LogFile,
        queue: list[Any],
        interner: Interner,
        overflowed: Callable[[], int],
        sampler: Sampler | None,
        each_period: Callable[[], None],
        code: CodeFolder | None = None,
    ) -> None:
        self._file = file
        self._queue = queue
        self._interner = interner
        self._overflowed = overflowed
        self._sampler = sampler  # None: everything is written
        self._each_period = each_period
        self._code = code
        self._encoder = msgspec.json.Encoder()
        self.listener: Callable[[Any], None] | None = None
        self._ready: list[Any] = []  # to be encoded, all together
        self._put = self._ready.append
        self._unencodable = 0
        self._unencodable_why = ""
        self._refused = 0
        self._warned = False
        self._stopping = False
        self._last: End | None = None
        # used as a binary semaphore: unlike threading.Event it may be set from inside itself (signals, gc)
        self._signal = threading.Lock()
        self._signal.acquire()
        self._thread: threading.Thread | None = None
        self._has_run = threading.Lock()  # released by the thread when it has written
        self._has_run.acquire()

    def start(self) -> None:
        self._stopping = False
        # after a fork the earlier thread may still be in a write that does not end: never two at once
        before = self._thread
        self._thread = threading.Thread(target=self._run, args=(before,), name="xlaprof writer", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Write the queue now rather than at the next period."""
        if self._signal.locked():
            with contextlib.suppress(RuntimeError):  # another thread woke it in between
                self._signal.release()

    def let_in(self) -> bool:
        """Wait until the thread has written; False if it did not for 20 ms: it waits for something else, a disk.

        A program that releases the interpreter's lock only for moments (a write to a pipe) and holds it for less than
        the switch interval in between can keep it from every other thread for good: the moment is over before the other
        has woken, and the interval begins anew.
        """
        self.wake()
        self._has_run.acquire(blocking=False)  # a release of some time ago
        return self._has_run.acquire(timeout=LET_IN_S)

    def stop(self, timeout: float, last: End | None = None) -> bool:
        """Write everything, ``last`` behind it, and end the thread; False if the disk took over ``timeout`` s."""
        thread = self._thread
        if thread is None:
            return True
        self._last = last
        self._stopping = True
        self.wake()
        thread.join(timeout)
        if thread.is_alive():
            return False
        self._thread = None
        return True

    def _run(self, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        while True:
            self._signal.acquire(timeout=self._rest_s())
            stopping = self._stopping  # read before the queue: what was queued before stop() is written
            try:
                if stopping or not self._is_idle():
                    self._turn(stopping)
                self._each_period()
            except Exception as error:  # the log must not be damaged silently
                self._complain(f"recording into {self._file.path} is damaged: {type(error).__name__}: {error}")
            if self._has_run.locked():
                with contextlib.suppress(RuntimeError):  # released twice in between
                    self._has_run.release()
            if stopping:
                return

    def _rest_s(self) -> float:
        """How long the thread may rest: a period, or until held events are due."""
        held_until = self._sampler.held_until if self._sampler is not None else 0
        if not held_until:
            return PERIOD_S
        return min(max((held_until - time.perf_counter_ns()) / 1e9, 0.0), PERIOD_S)

    def _turn(self, stopping: bool) -> None:
        self._drain()
        self._release(stopping)
        self._report_losses()
        self._flush(force=stopping)
        if stopping and self._last is not None:
            self._put(self._last)
            self._commit()
            self._flush()

    def _is_idle(self) -> bool:
        """Whether there is nothing to write: true of most periods in long steps."""
        held = self._sampler is not None and self._sampler.held_until
        return not (self._queue or held or self._file.waiting or self._file.lost)

    def _drain(self) -> None:
        queue = self._queue
        left = len(queue)  # what comes meanwhile is for the next turn: this one ends in a write
        while left > 0:
            batch = queue[: min(left, BATCH)]
            del queue[: len(batch)]
            left -= len(batch)
            if self._sampler is not None:
                self._sampler.feed(batch, self._put, self._define)
            else:
                self._put_all(batch)
            self._commit()
            if self._file.waiting >= FLUSH_BYTES:
                self._flush()

    def _put_all(self, events: list[Any]) -> None:
        for event in events:
            kind = type(event)
            if kind in DEFINING:
                self._define(event)
            elif kind is not StepOpened:
                self._put(event)

    def _define(self, event: Any) -> None:
        try:
            if type(event) is NewCode:
                if self._code is not None and (kept := self._code.keep(event)) is not None:
                    self._put(kept)
                return
            self._put(self._interner.resolve(event, self._put) if type(event) is NewStack else event)
        except Exception as error:  # a stack read off a running thread, source text from anywhere
            self._cannot_write(event, error)

    def _release(self, stopping: bool) -> None:
        """Write the events that the sampler has held for too long; at the end, all."""
        if self._sampler is not None:
            if stopping:
                self._sampler.release(self._put)
            else:
                self._sampler.tick(time.perf_counter_ns(), self._put)
            self._commit()

    def _commit(self) -> None:
        if self._ready:
            try:
                lines = self._encoder.encode_lines(self._ready)
            except Exception:  # a caller may put anything into an event
                lines = b""
            if not lines or has_long_line(lines):
                lines = b"".join([self._encode_cleaned(event) for event in self._ready])
            self._file.append(lines)
            if self.listener is not None:
                self._tell(self.listener)
            self._ready.clear()

    def _tell(self, listener: Callable[[Any], None]) -> None:
        try:
            for event in self._ready:
                listener(event)
        except Exception as error:  # the recording goes on without it
            self.listener = None
            warn(f"no more early warnings: {type(error).__name__}: {error}")

    def _encode_cleaned(self, event: Any) -> bytes:
        """One by one: texts and lists that are too long are cut, then text that is not UTF-8 (file names) and integers
        that JSON readers refuse are written in other words."""
        try:
            return line(event)
        except Exception as error:
            try:
                return self._encoder.encode(bounded(_clean(msgspec.to_builtins(event)))) + b"\n"
            except Exception:
                self._cannot_write(event, error)
                return b""

    def _cannot_write(self, event: Any, error: Exception) -> None:
        self._unencodable += 1
        self._unencodable_why = f"{type(event).__name__}: {error}"

    def _report_losses(self) -> None:
        """Record in the log how many events are missing from it."""
        refused = self._interner.refused - self._refused
        code = self._code
        self._refused += refused
        for count, why, detail in (
            (self._overflowed(), "queue", ""),
            (self._unencodable, "encode", self._unencodable_why),
            (refused, "names", ""),
            (code.take_lost() if code is not None else 0, "code", code.why if code is not None else ""),
        ):
            if count:
                self._put(Dropped(time.perf_counter_ns(), count, why, detail))
        self._unencodable = 0
        self._commit()

    def _flush(self, force: bool = False) -> None:
        if what := self._file.begin_again(self._definitions):
            self._complain(f"{self._file.path} was {what} while it was recorded: it begins again, without what it held")
        if not self._file.flush(force):
            self._complain(f"cannot write {self._file.path}: {self._file.trouble}; the program goes on")

    def _definitions(self) -> bytes:
        defined: list[Any] = []
        self._interner.define_again(defined.append)
        return self._encoder.encode_lines(defined)

    def _complain(self, message: str) -> None:
        if not self._warned:
            self._warned = True
            warn(message)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float(value) if abs(value) < 2**1000 else str(value.bit_length()) + "-bit integer"
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value
