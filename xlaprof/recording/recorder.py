"""Start and stop a recording, and the hot path by which events reach it.

The program's threads append events to a list (no lock, no encoding); a background thread encodes and writes
them (:mod:`xlaprof.recording.writer`). One recording at a time and per process.

* Fork: the child's recording is off and never touches the parent's log; the child may start its own.
* The program's end, ``sys.exit`` and uncaught exceptions close the log in order, with an ``End`` event;
  ``os._exit`` and signals lose at most the last 100 ms.
* With several ranks (``WORLD_SIZE`` > 1) each writes its own file: ``run.log`` becomes ``run.rank3.log``.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, Protocol, get_args

from xlaprof.errors import UserError, warn
from xlaprof.events import (
    NEWS,
    Code,
    Compiling,
    Counters,
    End,
    Event,
    Step,
)
from xlaprof.text.quantities import plural

from .attached import Attachment, Attachments
from .code_folder import CodeFolder, NewCode
from .gc_pauses import GcPauses
from .intern import Interner
from .logfile import MODE, header, open_log, rank_and_world, rank_path, refusal
from .looks import Looks
from .repeats import Repeats
from .sampling import Sampler, StepOpened
from .stacks import RawFrame
from .writer import Writer

#: The recording of this process, or None. Hot paths read it once per use.
active: Recorder | None = None

QUEUE_LIMIT = 200_000  # events waiting for the writer, at most: about 60 MB
COUNTERS_EVERY_NS = 200_000_000  # between two Counters events, at least
LATE_NS = 75_000_000  # a writer that has not written for so long is let in, where a scope, step or barrier ends
IN_VAIN_NS = 2_000_000_000  # until it is let in again after that was in vain
STOP_TIMEOUT_S = 10.0
#: the plug-in point of the live sources, a stage above: its ``install`` adds the observer that attaches them
SOURCES = "xlaprof.sources.attaching"

#: who follows the log waits for these
_URGENT = NEWS | {Compiling}


Detail = Literal["auto", "full"]


def _never() -> bool:
    return False


class RecordingError(UserError):
    """A recording cannot be started or stopped as asked. One line: what happened, and the way out."""


class Observer(Protocol):
    """A part of the program that has something to record."""

    def attach(self, rec: Recorder, /) -> Attachment | None:
        """Called when a recording begins; None where there is nothing to observe."""


_observers: list[Observer] = []
_at_start: list[Callable[[], None]] = []
# reentrant: a signal handler may stop the recording that is being started
_switch = threading.RLock()


def add_observer(observer: Observer) -> None:
    """Attach ``observer`` to every recording from now on, and at once if one is active."""
    with _switch:
        if any(known is observer for known in _observers):
            return
        _observers.append(observer)
        arrange_end()
        if active is not None:
            active.adopt(observer)


def at_start(call: Callable[[], None]) -> None:
    """Have ``call`` called whenever a recording starts, and at once if one is active.

    For code that needs no call at the end: unlike an observer it does not move the end of the recording at exit.
    """
    with _switch:
        _at_start.append(call)
        if active is not None:
            call()


class Recorder:
    """A recording in progress: :func:`record` makes it, library code finds it in :data:`active`."""

    joinable = False

    def __init__(
        self,
        path: str,
        *,
        overwrite: bool = True,
        detail: Detail = "auto",
        force: bool = False,
        mode: int = MODE,
        code: bool = False,
    ) -> None:
        import asyncio  # slow to import, and of no use to programs that do not record

        self.detail, self.mode = detail, mode
        self.queue: list[Any] = []
        self.limit = QUEUE_LIMIT  # 0 once the recording is over
        self.turns = 0  # steps and barriers so far
        self.edge = 0  # ns: when a scope last began or ended
        self.due = 0  # ns: a writer that has not written until then is let in
        self._overflow, self._overflow_lock = 0, threading.RLock()
        self._interner = Interner(self.queue.append)
        # bound once: these are the hot path
        self.text: Callable[[str], int] = self._interner.text
        self.stack: Callable[..., int] = self._interner.stack
        # read by Trace directly, to save the calls
        self.texts = self._interner.texts
        self.scope_names: dict[str, int] = {}
        self.here = self._interner.here
        self.running_loop = asyncio._get_running_loop
        self.in_dynamo: Callable[[], bool] = _never
        self.repeats = Repeats()
        self.thread: Callable[[], int] = self._interner.thread
        self._attached = Attachments()
        self._counters_at = time.perf_counter_ns()
        self._pauses = GcPauses(self.emit, self._interner)
        begins = header(*rank_and_world())  # asks for packages' versions: not between the file's opening and its header
        self._file = open_log(path, overwrite, force, mode)
        self._file.begin(begins)
        self.path = self._file.path
        sampler = Sampler() if detail == "auto" else None
        self.keeps_code = code  # whether texts of programs are asked for
        folder = CodeFolder(self.path) if code else None
        self._writer = Writer(
            self._file, self.queue, self._interner, self._take_overflow, sampler, self._each_period, folder
        )
        self._looks = Looks(self.emit, self.stack)
        self._each_period()

    # -- the hot path -----------------------------------------------------------------------------

    def emit(self, event: Event | NewCode) -> None:
        """Record an event: append, nothing else. Beyond :data:`QUEUE_LIMIT` it is dropped and counted."""
        queue = self.queue
        if len(queue) < self.limit:
            queue.append(event)
            if type(event) in _URGENT:
                self._writer.wake()
        elif self.limit:
            with self._overflow_lock:
                self._overflow += 1

    def keep_code(
        self, source: str, key: str, form: str, text: Callable[[], str], func: str = "", stack: int = 0
    ) -> None:
        """Keep a text of a compiled program, if texts are asked for; what ``text()`` raises is told once, and counted.

        ``source``, ``key`` and ``form`` are those of :class:`xlaprof.events.Code`; ``stack`` is a stack id.
        """
        if not self.keeps_code or not self.limit:
            return
        made = lost = ""
        try:
            made = text()
        except Exception as error:
            lost = f"{form} of {source} {key}: {type(error).__name__}: {error}"[:300]
        event = Code(time.perf_counter_ns(), source, key, form, "", func=self.text(func), stack=stack)
        self.emit(NewCode(event, made, lost))

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Call ``listener``, in the writer's thread, with each event that is written from now on."""
        self._writer.listener = listener

    def first_scope(self, name: str, frames: tuple[RawFrame, ...]) -> tuple[int, int]:
        """Ids of a scope's name and of its place, which only the first scope of a name has."""
        ident = self.text(name)
        place = self.stack(frames)
        if name in self.texts:  # neither too long nor one too many
            self.scope_names[name] = ident
        return ident, place

    def step_opened(self, t: int, tid: int) -> None:
        """A step began on thread ``tid`` at ``t``: until it ends its events may be held (``sampling``)."""
        if len(self.queue) < self.limit:
            self.queue.append(StepOpened(t, tid))

    def step(self, step: Step) -> None:
        """Record a step that has ended, and now and then the counters with it."""
        self.turns += 1
        if len(self.queue) < self.limit:
            self.queue.append(step)
        else:
            self.emit(step)
        now = time.perf_counter_ns()
        if now - self._counters_at >= COUNTERS_EVERY_NS:
            self._counters_at = now
            self._emit_counters()
        if now > self.due:
            self.let_writer_in(now)

    def let_writer_in(self, now: int) -> None:
        """Let an overdue writer in. ``now`` is ``time.perf_counter_ns()``."""
        if now > self.due and not self._writer.let_in():
            self.due = now + IN_VAIN_NS

    def flush(self) -> bool:
        """Wait until everything recorded so far is in the file; False if the disk took too long."""
        with _switch:
            written = self._writer.stop(STOP_TIMEOUT_S)
            if self.limit:
                self._writer.start()
        return written

    # -- counters and observers -------------------------------------------------------------------

    def adopt(self, observer: Observer) -> bool:
        """Attach ``observer`` until the recording ends; False if it has nothing to record."""
        name = getattr(observer, "name", type(observer).__name__)
        try:
            attachment = observer.attach(self)
            if attachment is None:
                return False
            self._attached.add(name, attachment)
        except Exception as error:
            warn(f"{name} is not observed: {type(error).__name__}: {error}")
            return False
        return True

    def _emit_counters(self) -> None:
        counts, seconds = self._pauses.counters()
        self._attached.count(counts, seconds)
        counts = {name: count for name, count in counts.items() if count}
        seconds = {name: total for name, total in seconds.items() if name in counts}
        self.emit(Counters(time.perf_counter_ns(), counts, seconds))

    def _start(self) -> None:
        self._writer.start()
        self._pauses.attach()

    def _detach_all(self) -> None:
        """Detach the observers and emit the final counters."""
        self._pauses.detach()
        self._attached.detach()
        self._looks.end(time.perf_counter_ns())
        self._emit_counters()

    def _close(self, error: str) -> None:
        if not self.limit:  # a signal handler stopped it while it was being stopped
            return
        self.limit = 0
        finished = self._writer.stop(STOP_TIMEOUT_S, End(time.perf_counter_ns(), error))
        if not finished:
            warn(f"{self.path} is incomplete: its disk did not answer for {STOP_TIMEOUT_S:.0f} s")
            return
        if self._file.waiting or self._file.lost_ever:
            self._file.give_up()
            warn(
                f"{self.path} lacks {plural(self._file.lost_ever, 'event')} that could not be written: {self._file.why}"
            )
        self._file.close()

    def _each_period(self) -> None:
        """Called at each turn of the writer: look at the main thread, and find Dynamo's flag once torch is imported.

        In code that Dynamo traces, scopes must not break the graph. Dynamo traces ``is_dynamo_compiling()`` as True; at
        run time it returns False. torch may be imported at any time after the recording began.
        """
        self.due = time.perf_counter_ns() + LATE_NS
        self._looks.look()
        self._attached.each_period()
        if self.in_dynamo is _never:
            compiler = sys.modules.get("torch.compiler")
            self.in_dynamo = getattr(compiler, "is_dynamo_compiling", _never)

    def _take_overflow(self) -> int:
        if not self._overflow:
            return 0
        with self._overflow_lock:
            count, self._overflow = self._overflow, 0
        return count

    def _abandon(self) -> None:
        """In a forked child: release the parent's log without writing a byte into it."""
        self.limit = 0
        self.keeps_code = False
        self.queue.clear()
        self._interner.after_fork()
        self._overflow_lock = threading.RLock()
        self._pauses.detach()
        self._file.close()


class record:  # used like a function
    """Record this process into ``path``; a context manager, and an object with ``start()`` and ``stop()``.

    ::

        with xlaprof.record("run.log"):
            train()

        rec = xlaprof.record("run.log")
        rec.start()
        ...
        rec.stop()

    ``detail="auto"`` keeps long recordings small: ordinary steps are summed instead of written event by event
    (:mod:`xlaprof.recording.sampling`); ``"full"`` keeps every event.
    ``joinable=True`` (set by ``xlaprof run``) lets a later ``record`` of the program join this recording, with one line
    on stderr where it names another file, instead of failing: its ``stop()`` then ends nothing.
    ``{rank}`` in the path is replaced by the process's rank; each of several ranks gets a file of its own.
    Where another process records into the file, this one takes the first free ``run.2.log`` and says so.
    An earlier recording is replaced; one of this process is kept as ``run.1.log``, with one line on stderr. Any other
    file is replaced with ``force=True`` only. ``mode``: permissions of the log, which has the program's arguments too.
    ``code=True`` keeps the texts of compiled programs in ``run.code/`` beside the log, for ``xlaprof show``.
    Raises :class:`RecordingError` if this process is recording already, if the file exists and ``overwrite`` is False
    or it is no recording, or if it cannot be written. The log notes the type of an exception that leaves the block.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = True,
        detail: Detail = "auto",
        joinable: bool = False,
        force: bool = False,
        mode: int = MODE,
        code: bool = False,
    ) -> None:
        if detail not in get_args(Detail):
            raise RecordingError(f"detail must be 'auto' or 'full', not {detail!r}")
        self.path = os.path.abspath(rank_path(os.fsdecode(path), *rank_and_world()))
        self._detail: Detail = detail
        self._overwrite = overwrite
        self._joinable = joinable
        self._force = force
        self._mode = mode
        self._code = code
        self._recorder: Recorder | None = None

    def start(self) -> record:
        """Begin the recording; returns this object. Raises :class:`RecordingError`."""
        global active
        with _switch:
            if active is not None and active.joinable:
                if active.path != self.path:
                    warn(f"already recording into {active.path}: {self.path} is not written")
                if self._code and not active.keeps_code:
                    warn(f"{active.path} is recorded without the texts of programs: start it with xlaprof run --code")
                return self
            if active is not None:
                stop = "stop that first (xlaprof.stop_recording())"
                raise RecordingError(f"already recording into {active.path}: {stop}, then record into {self.path}")
            importlib.import_module(SOURCES).install()
            try:
                recorder = Recorder(
                    self.path,
                    overwrite=self._overwrite,
                    detail=self._detail,
                    force=self._force,
                    mode=self._mode,
                    code=self._code,
                )
            except (OSError, ValueError) as error:
                raise RecordingError(refusal(self.path, error)) from None
            recorder.joinable, self.path = self._joinable, recorder.path
            recorder._start()
            self._recorder = active = recorder
            arrange_end()
            for call in tuple(_at_start):
                call()
            for observer in tuple(_observers):
                recorder.adopt(observer)
        return self

    def stop(self, error: str = "") -> None:
        """End the recording and close its log; nothing happens if it has ended already."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            _finish(recorder, error)

    def __enter__(self) -> record:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.stop(ending(value))


def start_recording(path: str | os.PathLike[str], *, overwrite: bool = True, detail: Detail = "auto") -> record:
    """``record(path).start()``: for scripts, which end their recording by ending.

    Raises :class:`RecordingError`, as :class:`record` does.
    """
    return record(path, overwrite=overwrite, detail=detail).start()


def stop_recording() -> None:
    """Stop the recording of this process, however it was started.

    Raises :class:`RecordingError` where nothing is being recorded.
    """
    with _switch:
        if active is None:
            raise RecordingError("nothing is being recorded: start with xlaprof.record(path)")
        _finish(active, "")


def _finish(recorder: Recorder, error: str) -> None:
    global active
    with _switch:
        if active is not recorder:  # stopped already, or this is a forked child
            return
        recorder._detach_all()
        active = None
        recorder._close(error)


def ending(error: BaseException | None) -> str:
    """How a program ended that ``error`` ends, as :class:`~xlaprof.events.End` has it: "ValueError", "exit code 3"."""
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)  # 1 where it is a message
        return f"exit code {code}" if code else ""
    return "" if error is None else type(error).__name__


# -- the end of the process, and forks ----------------------------------------------------------------


def _at_exit() -> None:
    if active is None:
        return
    error = sys.exc_info()[1]  # multiprocessing ends its children while their exception is in flight
    if error is None and not hasattr(sys, "ps1"):  # at a prompt the last error ended nothing
        error = getattr(sys, "last_value", None)
    _finish(active, ending(error))


_finalizer: tuple[int, Any] = (0, None)  # and of which process


def arrange_end() -> None:
    """At exit end the recording before the exit handlers registered so far: the observed runtime must be alive."""
    global _finalizer
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)
    util = sys.modules.get("multiprocessing.util")
    # a worker forgets the finalizers of what it has imported so far
    if util is not None and not (_finalizer[0] == os.getpid() and _finalizer[1].still_active()):
        # a forked worker leaves by os._exit, after its finalizers and without atexit
        _finalizer = os.getpid(), util.Finalize(None, _at_exit, exitpriority=100)


def _before_fork() -> None:
    _switch.acquire()
    if active is not None:
        # without the writer's thread the process forks as if unobserved (and Python does not warn)
        active._writer.stop(timeout=1.0)


def _after_fork_in_parent() -> None:
    if active is not None:
        active._writer.start()
    _switch.release()


def _after_fork_in_child() -> None:
    global active
    recorder, active = active, None
    if recorder is not None:
        recorder._abandon()
    _switch.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
