"""The logging handler on Dynamo's trace, for as long as a recording is on.

A handler on the logger ``torch.__trace`` has torch write its records, 1 to 4 % of the time that compiling takes, and
none of a step's.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import threading
from time import perf_counter_ns
from typing import Any

import msgspec

from xlaprof import events
from xlaprof.recording import recorder
from xlaprof.sources.trace_log import Listener

from . import cuda_graphs, process
from .calls.timer import Timer
from .emit import Emitter
from .phases import LASTING

_PHASES = 40  # told of one compilation: autotuning and what it is for may alternate


class Handler(Listener):
    """Hands Dynamo's records to a :class:`Emitter` as long as its recording is on."""

    def __init__(self, rec: recorder.Recorder) -> None:
        super().__init__(rec, "torch.compile")
        self._emitter = Emitter(rec)
        self._reset: Any = None  # Dynamo's function, watched
        self._optimize: Any = None  # the one behind torch.compile, too
        self._left = cuda_graphs.Told(self._left_out)
        self._timer = Timer(rec, self._emitter.graph, self.fail)
        #: by thread: what was told of the compilation that lasts
        self._lasting: dict[int, list[events.Compiling]] = {}
        #: by thread: the CUDA graph that it records, since when, and the error that it handles meanwhile
        self._recording: dict[int, tuple[cuda_graphs.Recorded, int, BaseException | None]] = {}

    # -- coming and going

    def attach(self) -> None:
        """Attach, also again after ``set_logs``, a ``dictConfig`` or ``torch._dynamo.reset`` removed what listens."""
        if not self.join():
            return
        self._register_callbacks()
        self._left.attach()
        if self._reset is None:
            self._watch_resets()
        if self._optimize is None:
            self._watch_requests()

    def begin(self) -> None:
        """Attach, and time the calls of graphs."""
        self.attach()
        self._timer.attach()

    def detach(self) -> None:
        """Leave nothing behind, for good."""
        self._timer.detach()
        self.leave()
        self._left.detach()
        dynamo: Any = sys.modules.get("torch._dynamo")
        if self._reset is not None and dynamo.reset is self._reset:
            dynamo.reset = self._reset.__wrapped__
        if self._optimize is not None and dynamo.optimize is self._optimize:
            dynamo.optimize = self._optimize.__wrapped__
        callbacks = compile_callbacks()
        if callbacks is not None:
            for called, mine in ((callbacks.start_callbacks, self._on_start), (callbacks.end_callbacks, self._on_end)):
                with contextlib.suppress(ValueError):  # reset() was here before
                    called.remove(mine)

    def _register_callbacks(self) -> None:
        callbacks = compile_callbacks()
        if callbacks is None:
            return
        if self._on_start not in callbacks.start_callbacks:
            callbacks.register_start_callback(self._on_start)
        if self._on_end not in callbacks.end_callbacks:
            callbacks.register_end_callback(self._on_end)

    def _watch_resets(self) -> None:
        """Have ``torch._dynamo.reset``, which writes no record, say that it is called."""
        dynamo: Any = sys.modules.get("torch._dynamo")
        reset = getattr(dynamo, "reset", None)
        if reset is None:
            return

        @functools.wraps(reset)
        def watched(*args: Any, **kwargs: Any) -> Any:
            try:
                if recorder.active is self._rec:
                    self._emitter.on_reset()
            except Exception as error:
                self.fail(error)
            return reset(*args, **kwargs)

        self._reset = dynamo.reset = watched

    def _watch_requests(self) -> None:
        """Have ``torch._dynamo.optimize``, which ``torch.compile`` calls and which writes no record, say so."""
        dynamo: Any = sys.modules.get("torch._dynamo")
        optimize = getattr(dynamo, "optimize", None)
        if optimize is None:
            return

        @functools.wraps(optimize)
        def watched(*args: Any, **kwargs: Any) -> Any:
            try:
                if recorder.active is self._rec and not kwargs.get("disable"):
                    self._emitter.on_request()
            except Exception as error:
                self.fail(error)
            return optimize(*args, **kwargs)

        self._optimize = dynamo.optimize = watched

    # -- what Dynamo calls

    def emit(self, record: logging.LogRecord) -> None:
        rec = recorder.active
        if rec is not self._rec:  # in a forked child, or another recording has begun
            self.detach()
            return
        try:
            metadata = getattr(record, "metadata", None)
            if isinstance(metadata, dict) and "chromium_event" in metadata:
                self._on_phase(self._emitter.phases.take(getattr(record, "payload", None)))
            elif isinstance(metadata, dict) and "str" not in metadata:
                if "dynamo_start" in metadata:
                    self._register_callbacks()  # reset() forgets them
                payload = getattr(record, "payload", None)
                self._emitter.take(metadata, payload)
                if rec.keeps_code:
                    self._emitter.keep_code(metadata, payload)
                if "inductor_output_code" in metadata:
                    self._emitter.generated(metadata, payload)
                    self._left.attach()
                    if cuda_graphs.asked(payload):
                        for left in cuda_graphs.left_out():
                            self._emitter.left_out(left)
        except Exception as error:
            self.fail(error)

    def _left_out(self, left: cuda_graphs.Left) -> None:
        try:
            if recorder.active is self._rec:
                self._emitter.left_out(left)
        except Exception as error:
            self.fail(error)

    def _on_start(self, args: Any) -> None:
        try:
            self.attach()
            rec = recorder.active
            if _records(args):
                one = cuda_graphs.recording()
                if one is not None:
                    self._recording[threading.get_ident()] = one, perf_counter_ns(), sys.exc_info()[1]
            elif rec is not None and rec is self._rec:
                place = rec.stack(process.caller())
                begins = events.Compiling(perf_counter_ns(), 0, place, "dynamo", rec.thread())
                rec.emit(begins)
                self._lasting[threading.get_ident()] = [begins]
        except Exception as error:
            self.fail(error)

    def _on_phase(self, phase: str) -> None:
        """A phase begins, which may last; the first few of a compilation are told."""
        told = self._lasting.get(threading.get_ident())
        if told is not None and phase in LASTING and phase != told[-1].phase and len(told) < _PHASES:
            now = perf_counter_ns()
            told.append(msgspec.structs.replace(told[0], t=now, phase=phase, spent=now - told[0].t))
            self._rec.emit(told[-1])

    def _on_end(self, args: Any) -> None:
        try:
            self._lasting.pop(threading.get_ident(), None)
            one = self._recording.pop(threading.get_ident(), None) if _records(args) else None
            if one is not None and recorder.active is self._rec and sys.exc_info()[1] is one[2]:  # it did not fail
                self._emitter.recorded(*one[:2])
            self.attach()  # what was compiled may have set up logging
        except Exception as error:
            self.fail(error)

    # -- what the recording asks

    def each_period(self) -> None:
        self._timer.each_period()

    def counters(self) -> tuple[dict[str, int], dict[str, float]]:
        """Also the moment to see whether somebody has cleared the logger's handlers."""
        self.attach()
        emitted = self._emitter
        counts = {
            "DynamoCompile": emitted.compiles,
            "DynamoGraphBreak": emitted.breaks,
            "DynamoRecompile": emitted.recompiles,
        }
        return counts, {"DynamoCompile": emitted.seconds}


def _records(args: Any) -> bool:
    """Whether Dynamo's callback is about the recording of a CUDA graph."""
    return getattr(getattr(args, "callback_trigger", None), "name", "") == cuda_graphs.RECORDING


def compile_callbacks() -> Any:
    """Dynamo's callbacks on the begin and end of compilations; None where this PyTorch has none."""
    try:
        from torch._dynamo.callback import callback_handler
    except ImportError:
        return None
    if not hasattr(callback_handler, "start_callbacks") or not hasattr(callback_handler, "end_callbacks"):
        return None
    return callback_handler
