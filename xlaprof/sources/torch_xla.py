"""PyTorch/XLA itself, where it is installed: what its metrics and its barriers report.

Its C++ part keeps, of each timed metric, when the latest samples were taken and how long they were. At every barrier
the new ones become events: compilations, executions, reads. They bear the barrier's line; PyTorch/XLA has no other.
"""

from __future__ import annotations

import functools
import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

from xlaprof import events
from xlaprof.recording import recorder, stacks
from xlaprof.recording.stacks import RawFrame
from xlaprof.vocabulary import STANDARD

#: its timed metrics that become events
TIMED = ("CompileTime", "ExecuteTime", "TransferFromDeviceTime", "TransferToDeviceTime")


class TorchXla:
    name = module = "torch_xla"
    vocabulary = STANDARD

    def attach(self, rec: recorder.Recorder) -> Watched | None:
        module = sys.modules[self.module]
        if module.__name__ != self.module:  # the facade, whose runtime records by itself
            return None
        watched = Watched(rec, importlib.import_module(f"{self.module}.debug.metrics"))
        watched.wrap_barrier(getattr(module, "_XLAC", None))
        recorder.arrange_end()
        return watched


LIVE = TorchXla()


class Watched:
    """PyTorch/XLA's metrics and barriers during one recording."""

    def __init__(self, rec: recorder.Recorder, metrics: Any) -> None:
        self._rec = rec
        self._metrics = metrics
        self._known = {name: self._data(name)[0] for name in TIMED}  # samples of each timed metric so far
        self._runs = self._programs = 0
        self._unwrap: Callable[[], None] = lambda: None

    def wrap_barrier(self, native: Any) -> None:
        marker = getattr(native, "_xla_step_marker", None)
        if marker is None:
            return

        @functools.wraps(marker)
        def step_marker(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter_ns()
            try:
                return marker(*args, **kwargs)
            finally:
                self._emit_barrier(start)

        native._xla_step_marker = step_marker
        self._unwrap = functools.partial(setattr, native, "_xla_step_marker", marker)

    def detach(self) -> None:
        """What came after the last barrier is emitted."""
        self._emit(())
        self._unwrap()

    def counters(self) -> tuple[dict[str, int], dict[str, float]]:
        """All of PyTorch/XLA's counters and timed metrics."""
        counts = {name: int(self._metrics.counter_value(name) or 0) for name in self._metrics.counter_names()}
        seconds = {}
        for name in self._metrics.metric_names():
            counts[name], total, _ = self._data(name)
            if name.endswith("Time"):
                seconds[name] = total / 1e9
        return counts, seconds

    def _emit_barrier(self, start: int) -> None:
        rec = self._rec
        if recorder.active is not rec:  # in a forked child
            return
        now = time.perf_counter_ns()
        frames = stacks.user_frames()
        run = self._emit(frames)
        rec.emit(events.Barrier(start, now - start, "mark_step", rec.stack(frames), execution=run, tid=rec.thread()))
        rec.let_writer_in(now)

    def _data(self, name: str) -> tuple[int, float, list[tuple[float, float]]]:
        count, total, samples = self._metrics.metric_data(name) or (0, 0.0, [])
        return int(count), float(total), list(samples)

    def _emit(self, frames: tuple[RawFrame, ...]) -> int:
        """Emit the samples that are new; the number of the last execution among them, or 0."""
        rec = self._rec
        unix_to_mono = time.perf_counter_ns() - time.time_ns()
        stack, last = rec.stack(frames), 0
        for name in TIMED:
            count, _, samples = self._data(name)
            fresh = count - self._known.get(name, 0)
            self._known[name] = count
            for at_s, length in samples[-fresh:] if fresh > 0 else ():
                end, dur = int(at_s * 1e9) + unix_to_mono, int(length)
                start = end - dur
                if name == "CompileTime":
                    self._programs += 1
                    rec.emit(
                        events.Compile(start, dur, self._programs, str(self._programs), 0, 0, 0, stack, backend=dur)
                    )
                elif name == "ExecuteTime":
                    self._runs += 1
                    last = self._runs
                    rec.emit(events.Execute(last, self._programs, start, start, end, stack=stack))
                elif name == "TransferFromDeviceTime":
                    rec.emit(events.TransferFromDevice(start, dur, dur, 0, stack=stack))
                else:
                    rec.emit(events.TransferToDevice(start, dur, 0, stack=stack))
        return last
