"""Executions on their way: who waits for their end, and how it is stamped.

A watcher thread blocks on each execution's last output. Its stamp can be late by as long as Python keeps the
interpreter's lock from it (5 ms at most in pure Python), so while a recording is on the dispatch function asks too
(:func:`poll`); whoever sees the end first stamps it.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections import deque
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from xlaprof import events, recorder

from . import metrics

if TYPE_CHECKING:
    from xlaprof.stacks import RawFrame

    from .tape import Tape
    from .trie import Node


class InFlight:
    """One execution, from its enqueueing until its end was seen."""

    __slots__ = ("ended", "enqueue", "enqueued", "frames", "number", "seq", "tape", "token", "trigger")

    def __init__(
        self,
        seq: int,
        tape: Tape,
        number: int,
        enqueued: int,
        enqueue: int,
        token: Any,
        trigger: str,
        frames: tuple[RawFrame, ...],
    ) -> None:
        self.seq = seq
        self.tape = tape
        self.number = number
        self.enqueued = enqueued
        self.enqueue = enqueue
        self.token = token
        self.trigger = trigger
        self.frames = frames
        self.ended = False


_running: deque[InFlight] = deque()
_handed_over: queue.SimpleQueue[InFlight] = queue.SimpleQueue()
_stamping = threading.Lock()
_last_end: dict[int, int] = {}
_numbers = itertools.count(1)
_ticks = itertools.count(1)
_watcher: threading.Thread | None = None


def tick(node: Node) -> None:
    """A plan that ends at ``node`` is used now."""
    node.last_used = next(_ticks)


def add(
    tape: Tape, number: int, enqueued: int, enqueue: int, token: Any, trigger: str, frames: tuple[RawFrame, ...]
) -> InFlight:
    """An execution was handed to the device."""
    global _watcher
    run = InFlight(next(_numbers), tape, number, enqueued, enqueue, token, trigger, frames)
    metrics.begin("ExecuteTime")
    _running.append(run)
    _handed_over.put(run)
    if _watcher is None:
        _watcher = threading.Thread(target=_watch, name="xlaprof-watcher", daemon=True)
        _watcher.start()
    return run


def _watch() -> None:
    while True:
        _end(_handed_over.get())


def _end(run: InFlight) -> None:
    """Wait for the end of ``run`` and stamp it."""
    token, error = run.token, ""
    if token is not None:
        try:
            token.block_until_ready()
        except Exception as failure:  # told in the event, and raised to whoever reads the results
            error = f"{type(failure).__name__}: {failure}".splitlines()[0]
    _stamp(run, error)


def _stamp(run: InFlight, error: str = "") -> None:
    now = perf_counter_ns()
    with _stamping:
        if run.ended:
            return
        run.ended = True
        run.token = None
        start = max(run.enqueued, _last_end.get(run.tape.index, 0))
        end = max(now, start)
        _last_end[run.tape.index] = end
        try:
            _running.remove(run)
        except ValueError:  # cleared by a fork
            return
    metrics.end("ExecuteTime", end - start)
    rec = recorder.active
    if rec is not None:
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
            )
        )


def poll() -> None:
    """Stamp the oldest execution if it has ended."""
    try:
        run = _running[0]
    except IndexError:
        return
    token = run.token
    if token is not None and token.is_ready():
        _end(run)


def wait(tape: Tape | None = None) -> None:
    """Return when everything handed over so far (to ``tape``'s device, or to all) has ended and is stamped."""
    for run in list(_running):
        if tape is None or run.tape is tape:
            _end(run)
