"""The runtime's side of a recording: what it tells the recorder, and the clock it keeps while one is on.

With no recording, :data:`state.on` is false and none of this costs anything: the dispatch function that keeps the clock
(:func:`timed_dispatch`) takes the plain one's place only while a recording is on.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from xlaprof import events, recorder, stacks

from . import inflight, metrics, tapes
from .tape import Tape
from .tensor import HANDLERS, XLATensor

#: ns in which the host recorded no operation that are told as a hole
HOLE_NS = 1_000_000

_plain_dispatch = XLATensor.__torch_dispatch__


class _Clock:
    """What the host did since the barrier before, by the clock."""

    __slots__ = ("aside", "calls", "depth", "excluded", "last_end", "last_frames", "tracing")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.tracing = 0  # ns spent recording operations
        self.excluded = 0  # ns inside dispatch that were something else: reads, uploads, fallbacks
        self.aside = False
        self.last_end = 0
        self.depth = 0
        self.calls = 0
        self.last_frames: tuple[stacks.RawFrame, ...] = ()


clock = _Clock()


class aside:  # used like a function
    """What happens inside is not recording, though it happens in dispatch: a read, an upload, a fallback."""

    __slots__ = ("_outer", "_start")

    def __enter__(self) -> None:
        self._outer = clock.aside
        clock.aside = True
        self._start = perf_counter_ns()

    def __exit__(self, *_: object) -> None:
        clock.aside = self._outer
        if not self._outer:
            clock.excluded += perf_counter_ns() - self._start


def timed_dispatch(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """The dispatch function while a recording is on."""
    if clock.depth:  # a decomposition's own operations are part of it
        return _plain_dispatch(func, types, args, kwargs)
    clock.depth = 1
    start = perf_counter_ns()
    excluded = clock.excluded
    last = clock.last_end
    try:
        handler = HANDLERS.get(id(func))
        if handler is None:
            return _plain_dispatch(func, types, args, kwargs)
        return handler(args, kwargs or {})
    finally:
        clock.depth = 0
        clock.last_end = end = perf_counter_ns()
        clock.tracing += end - start - (clock.excluded - excluded)
        if start - last > HOLE_NS and last:
            _hole(last, start)
        clock.calls += 1
        if not clock.calls & 15:
            inflight.poll()


def _hole(last: int, start: int) -> None:
    rec = recorder.active
    if rec is not None:
        now = stacks.user_frames()
        rec.emit(events.Hole(last, start - last, rec.stack(clock.last_frames), rec.stack(now), rec.thread()))


def touch(frames: tuple[stacks.RawFrame, ...]) -> None:
    """The host came to ``frames`` in something that is told by an event of its own: no hole before now."""
    clock.last_end = perf_counter_ns()
    clock.last_frames = frames


def take_tracing() -> int:
    """ns spent recording since last asked."""
    spent, clock.tracing = clock.tracing, 0
    return spent


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
