"""Executions in flight: a watcher thread waits for their end and stamps it.

The watcher blocks on each execution's last output. It stamps late if it does not get the interpreter's lock (by up to
5 ms in pure Python), so while a recording is on, the dispatch function polls too (:func:`poll`). The first to see the
end stamps it.
"""

from __future__ import annotations

import atexit
import itertools
import queue
import threading
from collections import deque
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from xlaprof import events
from xlaprof.recording import recorder
from xlaprof.runtime import metrics
from xlaprof.runtime.clock import NEVER, clock
from xlaprof.runtime.instruments import hooks, idle_sampler
from xlaprof.runtime.tape import mode

from . import value_checks

if TYPE_CHECKING:
    from xlaprof.recording.stacks import RawFrame
    from xlaprof.runtime.tape.graph import Graph
    from xlaprof.runtime.tape.tape import Tape


class InFlight(msgspec.Struct, eq=False):
    """One execution, from its start to the stamp of its end."""

    tape: Tape
    number: int  # of its program
    tests: list[value_checks.Test]
    enqueued: int  # ns: when it was handed over
    enqueue: int  # ns: how long that took
    token: Any  # an output that is ready when it has ended
    trigger: str
    frames: tuple[RawFrame, ...]
    graph: Graph
    results: tuple[int, ...] = ()  # ids of the arrays, in order of graph.outs
    calls: int = 1  # programs: a burst of eager mode has several
    seq: int = 0
    ended: bool = False
    read: bool = False  # has the program seen a value that it made?
    error: Exception | None = None


_running: deque[InFlight] = deque()
_handed_over: queue.SimpleQueue[InFlight | None] = queue.SimpleQueue()
_stamping = threading.Lock()
_last_end: dict[int, int] = {}
#: index of a tape -> ids of the arrays of its latest execution
_latest: dict[int, tuple[int, ...]] = {}
#: index of a tape -> ident of the thread that last came to a barrier
_stepping: dict[int, int] = {}
#: executions that failed on the device: those not yet raised, and the latest of all
_unreported: deque[InFlight] = deque(maxlen=64)
_failed: deque[InFlight] = deque(maxlen=64)
_numbers = itertools.count(1)
_watcher: threading.Thread | None = None


def add(run: InFlight, arrays: list[Any]) -> None:
    """``run`` was handed to the device; it makes ``arrays``."""
    tape = run.tape
    for notify in hooks.executing:
        notify(tape, run.graph, run.trigger, arrays)
    run.seq, run.results = next(_numbers), tuple(map(id, arrays))
    _latest[tape.index] = run.results
    if run.trigger != "read":
        _stepping[tape.index] = threading.get_ident()
    if run.trigger != "eager":
        metrics.begin("ExecuteTime")
        if tape.partition is not None:
            metrics.begin("ExecuteReplicatedTime")
    _watch_over(run)


def add_burst(run: InFlight, ended: int) -> None:
    """Add a burst of eager operations, up to ``ended``; the token of ``run`` is a result of the last.

    Nobody watched the device: if it has finished, ``ended`` is taken as the end.
    """
    run.seq, run.results = next(_numbers), (id(run.token),)
    _latest.pop(run.tape.index, None)  # the arrays it made are not known
    if run.token.is_ready():
        run.token = None
        _stamp(run, now=ended)
    else:
        _watch_over(run)


def _watch_over(run: InFlight) -> None:
    global _watcher
    _running.append(run)
    clock.alarm = 0.0
    _handed_over.put(run)
    if _watcher is None:
        _watcher = threading.Thread(target=_watch, name="xlaprof-watcher", daemon=True)
        _watcher.start()
        atexit.register(_dismiss)


def _watch() -> None:
    pause: float | None = None  # until the next sample of the idle host; None: no sampling
    while True:
        try:
            run = _handed_over.get(timeout=pause)
        except queue.Empty:
            pause = idle_sampler.look(max(_last_end.values(), default=0)) if not _running else None
            continue
        if run is None:
            return
        idle_sampler.end()
        _end(run)
        pause = idle_sampler.begin()


def _dismiss() -> None:
    """At exit: let the watcher see the end of what is in flight, and end it.

    A thread inside jax that asks for the interpreter's lock after finalization is killed in the middle of C++, and the
    process with it.
    """
    if _watcher is not None and _watcher.is_alive():  # it is not in a forked child
        _handed_over.put(None)
        _watcher.join()


def _end(run: InFlight) -> None:
    """Wait for the end of ``run`` and stamp it."""
    token, error = run.token, ""
    if token is not None:
        try:
            token.block_until_ready()
            if run.tests:
                run.error = value_checks.verdict(run.tests, np.asarray(token))
        except Exception as failure:  # recorded, and raised by the next read, wait or barrier
            error = f"{type(failure).__name__}: {failure}".splitlines()[0]
            run.error = failure.with_traceback(None)
    _stamp(run, error)


def _stamp(run: InFlight, error: str = "", now: int = 0) -> None:
    now = now or perf_counter_ns()
    with _stamping:  # until the metrics are told: who reads them waits
        if run.ended:
            return
        run.ended = True
        if run.error is not None:
            _unreported.append(run)
            _failed.append(run)
        run.token = None
        start = max(run.enqueued, _last_end.get(run.tape.index, 0))
        end = max(now, start)
        _last_end[run.tape.index] = end
        try:
            _running.remove(run)
        except ValueError:  # cleared by a fork, or never watched
            if run.trigger != "eager":
                return
        clock.alarm = NEVER  # set first: another thread may hand something over meanwhile
        if _running:
            clock.alarm = 0.0
        if run.trigger != "eager":
            metrics.end("ExecuteTime", end - start)
            if run.tape.partition is not None:
                metrics.end("ExecuteReplicatedTime", end - start)
    rec = recorder.active
    if rec is not None:
        idle_sampler.end()  # emits the samples of the gap before it
        rec.emit(
            events.Execute(
                run.seq,
                run.number,
                run.enqueued,
                start,
                end,
                run.enqueue,
                run.trigger,
                rec.stack(run.frames),
                run.tape.index,
                error,
                run.calls,
            )
        )


def busy() -> bool:
    """Is anything in flight?"""
    return bool(_running)


def poll() -> bool:
    """Stamp the oldest execution if it has ended; is anything in flight still?"""
    try:
        run = _running[0]
    except IndexError:
        return False
    token = run.token
    if token is not None and token.is_ready():
        _end(run)
    return bool(_running)


def _stamp_ended() -> None:
    """Stamp what has ended, so that metrics read after a value include the execution that made it."""
    for run in list(_running):
        token = run.token
        if token is not None and (run.read or token.is_ready()):  # a value is there a moment before the token
            _end(run)
    with _stamping:  # another thread may be about to tell the metrics
        pass


metrics.before_reading(_stamp_ended)


def unreported(tape: Tape | None = None) -> InFlight | None:
    """An execution (of ``tape``) that failed on the device and was not raised yet; now it counts as raised."""
    for run in list(_unreported):
        if tape is None or run.tape is tape:
            _unreported.remove(run)
            return run
    return None


def origin(array: Any) -> tuple[InFlight, int] | None:
    """The execution that made ``array``, which cannot be read, and its slot there; it now counts as raised."""
    for run in (*_running, *_failed):
        if id(array) in run.results:
            _end(run)
            if run in _unreported:
                _unreported.remove(run)
            return run, run.graph.outs[run.results.index(id(array))]
    return None


def were_read(arrays: list[Any]) -> None:
    """The program has the values of ``arrays``: their executions count as ended when metrics are read."""
    ids = set(map(id, arrays))
    for run in list(_running):
        if not ids.isdisjoint(run.results):
            run.read = True


def leaves_work(tape: Tape, arrays: list[Any]) -> bool:
    """Does the device have something to do while this thread waits for ``arrays``?

    It does where they are older than the latest execution, and where another thread comes to the barriers, which goes
    on meanwhile.
    """
    if _stepping.get(tape.index, threading.get_ident()) != threading.get_ident():
        return True
    latest = _latest.get(tape.index)
    return latest is not None and not any(id(array) in latest for array in arrays)


def settle(arrays: list[Any]) -> InFlight | None:
    """Wait for the executions that make ``arrays``; return one that failed debug checks, which now counts as raised."""
    ids = {id(array) for array in arrays}
    for run in (*_running, *_unreported):
        if run.tests and not ids.isdisjoint(run.results):
            _end(run)
            if run in _unreported:
                _unreported.remove(run)
                return run
    return None


def wait(tape: Tape | None = None) -> None:
    """Return when everything handed over so far (to ``tape``'s device, or to all) has ended and is stamped."""
    if mode.wait_for_eager is not None:
        mode.wait_for_eager(tape)
    for run in list(_running):
        if tape is None or run.tape is tape:
            _end(run)
