"""Listens to what TorchTPU writes into PyTorch's structured trace while a recording is on."""

from __future__ import annotations

import logging
import os
import sys
from time import perf_counter_ns, time_ns

from xlaprof.errors import warn
from xlaprof.recording import recorder
from xlaprof.recording.stacks import RawFrame
from xlaprof.sources.trace_log import Listener

from .batches import Batch, Batches
from .emit import Emitter

#: of TorchTPU 0.2: writes what its thread would within the next five seconds
_TRACING, _FLUSH = "torch_tpu._internal.tracing", "_flush"
_LATE_NS = 3_600 * 10**9  # a batch so long before is none of this program's
_APART_NS = 1_000_000_000  # two clocks may have drifted, or one was set


class Handler(Listener):
    """Hands TorchTPU's records to an :class:`Emitter` as long as its recording is on."""

    def __init__(self, rec: recorder.Recorder) -> None:
        super().__init__(rec, "TorchTPU")
        self._emitter = Emitter(rec.text, lambda frame: rec.stack((_absolute(frame),)))
        self._batches = Batches()
        self._begun = perf_counter_ns()

    def begin(self) -> None:
        """Listen; say so where TorchTPU will not tell anything."""
        self.join()
        if not os.environ.get("TORCH_TRACE"):
            warn(
                "torch_tpu tells of its batches only where TORCH_TRACE names a folder before the program begins: "
                "TORCH_TRACE=/tmp/trace xlaprof run ..."
            )

    def detach(self) -> None:
        """Have TorchTPU write what it has gathered since it wrote last, and go."""
        flush = getattr(sys.modules.get(_TRACING), _FLUSH, None)
        if flush is not None and recorder.active is self._rec:
            try:
                flush()
            except Exception as error:
                self.fail(error)
        for batch in self._batches.end():
            self._emit(batch)
        self.leave()

    def emit(self, record: logging.LogRecord) -> None:
        rec = recorder.active
        if rec is not self._rec:  # in a forked child, or another recording has begun
            self.leave()
            return
        try:
            metadata, payload = getattr(record, "metadata", None), getattr(record, "payload", None)
            if not isinstance(metadata, dict):
                return
            for batch in self._batches.take(metadata, payload, record.thread or 0):
                self._emit(batch)
        except Exception as error:
            self.fail(error)

    def counters(self) -> tuple[dict[str, int], dict[str, float]]:
        """Also the moment to see whether somebody has cleared the logger's handlers."""
        self.join()
        made = self._emitter
        return {"TorchTPUBatch": made.batches, "TorchTPUCompile": made.made}, {"TorchTPUCompile": made.seconds}

    def _emit(self, batch: Batch) -> None:
        try:
            now = perf_counter_ns()
            t = now - (time_ns() - batch.unix_ns) if batch.unix_ns else now
            if not self._begun - _LATE_NS <= t <= now + _APART_NS - batch.dur:
                raise ValueError(f"a batch at {batch.unix_ns} ns of the unix clock, which cannot be")
            if t >= self._begun:  # or else it was before the recording began
                self._rec.emit(self._emitter.event(batch, min(t, now)))
        except Exception as error:
            self.fail(error)


def _absolute(frame: RawFrame) -> RawFrame:
    return frame if frame.file.startswith("<") else frame._replace(file=os.path.abspath(frame.file))
