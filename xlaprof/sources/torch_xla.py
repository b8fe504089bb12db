"""PyTorch/XLA itself, where it is installed: what its metrics and its barriers tell.

Its C++ part keeps, of each timed metric, when the latest samples were taken and how long they were. At every barrier
the new ones become events: compilations, executions, reads. They bear the barrier's line; PyTorch/XLA has no other.
"""

from __future__ import annotations

import functools
import os
import time
from types import ModuleType
from typing import Any

from xlaprof import events
from xlaprof.recording import recorder, stacks
from xlaprof.recording.stacks import RawFrame
from xlaprof.recording.writer import warn

#: its timed metrics that are told as events
TIMED = ("CompileTime", "ExecuteTime", "TransferFromDeviceTime", "TransferToDeviceTime")


def observe(module: ModuleType) -> None:
    """Record what ``module``, the real ``torch_xla``, does from now on."""
    from importlib import import_module

    try:
        watched = Watched(import_module(f"{module.__name__}.debug.metrics"))
    except ImportError as error:
        warn(f"the torch_xla in {os.path.dirname(module.__file__ or '')} is not observed: {error}")
        return
    native: Any = getattr(module, "_XLAC", None)
    marker = getattr(native, "_xla_step_marker", None)
    if marker is not None:

        @functools.wraps(marker)
        def step_marker(*args: Any, **kwargs: Any) -> Any:
            with watched.barrier():
                return marker(*args, **kwargs)

        native._xla_step_marker = step_marker
    recorder.add_observer(watched)


class Watched:
    """A recording's view of PyTorch/XLA's metrics."""

    def __init__(self, metrics: Any) -> None:
        self._metrics = metrics
        self._told: dict[str, int] = {}  # samples of each timed metric so far
        self._runs = self._programs = 0

    def recording_started(self, rec: recorder.Recorder) -> None:
        """Nothing of before is told."""
        for name in TIMED:
            self._told[name] = self._data(name)[0]

    def recording_stopping(self, rec: recorder.Recorder) -> None:
        """What came after the last barrier."""
        self._tell(rec, ())

    def counters(self) -> tuple[dict[str, int], dict[str, float]]:
        """All of PyTorch/XLA's counters and timed metrics."""
        counts = {name: int(self._metrics.counter_value(name) or 0) for name in self._metrics.counter_names()}
        seconds = {}
        for name in self._metrics.metric_names():
            counts[name], total, _ = self._data(name)
            if name.endswith("Time"):
                seconds[name] = total / 1e9
        return counts, seconds

    def barrier(self) -> _Barrier:
        """Context of one barrier."""
        return _Barrier(self)

    def _data(self, name: str) -> tuple[int, float, list[tuple[float, float]]]:
        count, total, samples = self._metrics.metric_data(name) or (0, 0.0, [])
        return int(count), float(total), list(samples)

    def _tell(self, rec: recorder.Recorder, frames: tuple[RawFrame, ...]) -> int:
        """Emit the samples that are new; the number of the last execution among them, or 0."""
        unix_to_mono = time.perf_counter_ns() - time.time_ns()
        stack, last = rec.stack(frames), 0
        for name in TIMED:
            count, _, samples = self._data(name)
            fresh = count - self._told.get(name, 0)
            self._told[name] = count
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


class _Barrier:
    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    def __enter__(self) -> None:
        self._start = time.perf_counter_ns()

    def __exit__(self, *_: object) -> None:
        rec = recorder.active
        if rec is None:
            return
        now = time.perf_counter_ns()
        frames = stacks.user_frames()
        run = self._watched._tell(rec, frames)
        rec.emit(
            events.Barrier(
                self._start, now - self._start, "mark_step", rec.stack(frames), execution=run, tid=rec.thread()
            )
        )
        rec.breathe(now)
