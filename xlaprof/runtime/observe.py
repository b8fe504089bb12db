"""The runtime's side of a recording: what it tells the recorder of the time between events.

With no recording none of this costs anything: :func:`timed_dispatch`, which keeps the :mod:`.clock`, takes the plain
dispatch function's place only while a recording is on.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from xlaprof import events, recorder
from xlaprof.stacks import RawFrame

from . import inflight, metrics, source, tapes
from .clock import HOLE_NS, clock
from .tape import Tape
from .tensor import HANDLERS, XLATensor

#: ns between two looks: by so much a hole may seem to begin too early, and an execution to end too late
LOOK_NS = 100_000

_plain_dispatch = XLATensor.__torch_dispatch__


def timed_dispatch(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """The dispatch function while a recording is on: the plain one after one look at the clock."""
    now = perf_counter_ns()
    if now > clock.alarm:
        _look(now)
    handler = HANDLERS.get(id(func))
    if handler is None:
        return _plain_dispatch(func, types, args, kwargs)
    return handler(args, kwargs or {})


def _look(now: int) -> None:
    """Book the time since the last look, and see whether the device has finished."""
    gap = now - clock.last
    clock.last = now
    clock.alarm = now + LOOK_NS
    if gap < HOLE_NS:
        clock.tracing += gap
    elif not clock.asides:
        _hole(now, gap, source.here()[0])
    inflight.poll()


def arrive(frames: tuple[RawFrame, ...]) -> None:
    """The host has come to ``frames``, a barrier: what was since the last operation is tracing, or a hole."""
    now = perf_counter_ns()
    gap = now - clock.last
    clock.last = now
    if gap < HOLE_NS:
        clock.tracing += gap
    else:
        _hole(now, gap, frames)


def _hole(now: int, gap: int, after: tuple[RawFrame, ...]) -> None:
    rec = recorder.active
    if rec is not None:
        node = next((tape.node for tape in tapes.existing() if tape.node.frames), clock.node)
        before = clock.frames if node is None or node is clock.node else node.frames
        rec.emit(events.Hole(now - gap, gap, rec.stack(before), rec.stack(after), rec.thread()))


class _Observer:
    """Told by the recorder when recordings start and stop."""

    def recording_started(self, rec: recorder.Recorder) -> None:
        clock.reset()
        XLATensor.__torch_dispatch__ = staticmethod(timed_dispatch)
        for tape in tapes.existing():
            announce(rec, tape)

    def recording_stopping(self, rec: recorder.Recorder) -> None:
        XLATensor.__torch_dispatch__ = staticmethod(_plain_dispatch)
        inflight.wait()

    def counters(self) -> tuple[dict[str, int], dict[str, float]]:
        return metrics.totals()


def announce(rec: recorder.Recorder, tape: Tape) -> None:
    """Tell the recording which device is behind ``tape``."""
    device = tape.device
    rec.emit(events.Device(perf_counter_ns(), device.platform, device.device_kind, tapes.count()))


def install() -> None:
    """Let recordings see this runtime."""
    recorder.add_observer(_Observer())
