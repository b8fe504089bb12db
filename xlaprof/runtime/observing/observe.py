"""The runtime's side of a recording: starts and stops the instruments that run between events.

Without a recording they cost nothing: :func:`timed_dispatch`, which updates :mod:`xlaprof.runtime.clock`, replaces the
plain dispatch function only while a recording is on.
"""

from __future__ import annotations

from time import perf_counter, perf_counter_ns
from typing import Any

from xlaprof import events
from xlaprof.recording import recorder
from xlaprof.recording.thread_cpu import processors
from xlaprof.runtime import metrics
from xlaprof.runtime.clock import NEVER, clock
from xlaprof.runtime.execution import inflight
from xlaprof.runtime.instruments import host_time, idle_sampler
from xlaprof.runtime.instruments.host_time import HOLE_S
from xlaprof.runtime.instruments.live_tensors import readings
from xlaprof.runtime.tape import tapes
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace import tensor
from xlaprof.runtime.trace.errors import Foreign, raise_explained
from xlaprof.runtime.trace.tensor import XLATensor

from . import before_gc

#: s between two polls of executions in flight: their stamps may be this late
LOOK_S = 100e-6
_plain_dispatch = XLATensor.__torch_dispatch__


def timed_dispatch(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """The dispatch function while a recording is on: the plain one, with the time noted."""
    known = clock
    now = perf_counter()
    if now - known.seen > HOLE_S or now > known.alarm:
        _check(now)
    known.seen = now
    handler = tensor.current.get(id(func))
    if handler is None:
        return _plain_dispatch(func, types, args, kwargs)
    try:
        return handler(args, kwargs or {})
    except Foreign:
        return NotImplemented
    except Exception as error:
        raise_explained(error, func, args, kwargs or {})


tensor.dispatchers.append(timed_dispatch)


def _check(now: float) -> None:
    """Account for the host's time, and poll the executions in flight."""
    host_time.account(round(now * 1e9))
    clock.alarm = NEVER  # set first: another thread may hand something over meanwhile
    if inflight.poll():
        clock.alarm = now + LOOK_S


class _Observer:
    """Keeps the runtime's instruments on during a recording."""

    def attach(self, rec: recorder.Recorder) -> _Observer:
        clock.reset()
        readings.reset()
        idle_sampler.start(rec)
        before_gc.start()
        XLATensor.__torch_dispatch__ = staticmethod(timed_dispatch)
        for tape in tapes.existing():
            announce(rec, tape)
        return self

    def detach(self) -> None:
        XLATensor.__torch_dispatch__ = staticmethod(_plain_dispatch)
        inflight.wait()
        idle_sampler.stop()
        before_gc.stop()

    def counters(self) -> tuple[dict[str, int], dict[str, float]]:
        return metrics.totals()


def announce(rec: recorder.Recorder, tape: Tape) -> None:
    """Emit the hardware behind ``tape``."""
    device = tape.device
    count = tapes.count() if tape.partition is None else len(tape.partition.devices)
    cores = processors() if device.platform == "cpu" else 0
    rec.emit(events.Device(perf_counter_ns(), device.platform, device.device_kind, count, cores))


def _opened(tape: Tape) -> None:
    rec = recorder.active
    if rec is not None:
        announce(rec, tape)


def install() -> None:
    """Let recordings see this runtime."""
    tapes.opened = _opened
    recorder.add_observer(_Observer())
