"""Accounts the host's time between the moments of :mod:`~xlaprof.runtime.clock`: tracing, or a hole."""

from __future__ import annotations

from threading import get_ident
from time import perf_counter_ns

from xlaprof import events
from xlaprof.recording import recorder
from xlaprof.recording.stacks import RawFrame
from xlaprof.runtime.clock import HOLE_NS, clock
from xlaprof.runtime.tape import tapes
from xlaprof.runtime.trace import source

#: :data:`HOLE_NS` in s
HOLE_S = HOLE_NS / 1e9


def arrive(frames: tuple[RawFrame, ...]) -> int:
    """Note that the host is at ``frames``, a barrier; return the recording's number for this thread."""
    rec = recorder.active
    tid = 1
    if rec is not None:
        clock.ident, clock.tid = get_ident(), (tid := rec.here.tid)
    account(perf_counter_ns(), frames)
    return tid


def account(now: int, frames: tuple[RawFrame, ...] | None = None) -> None:
    """Count the time until ``now`` as tracing, except a hole at its end. ``frames``: by default this thread's."""
    gap, since, seen = 0, clock.since, now / 1e9
    if seen - clock.seen > HOLE_S:
        gap = now - max(clock.last, since)  # with two threads that record, one may note its time late
        if gap <= HOLE_NS:
            gap = 0
        elif not clock.asides:
            _emit_hole(now, gap, source.here()[0] if frames is None else frames)
    clock.tracing += now - gap - since
    clock.since, clock.seen = now, seen


def _emit_hole(now: int, gap: int, after: tuple[RawFrame, ...]) -> None:
    rec = recorder.active
    if rec is not None:
        node = next((tape.node for tape in tapes.existing() if tape.node.frames), clock.node)
        before = clock.frames if node is None or node is clock.node else node.frames
        rec.emit(events.Hole(now - gap, gap, rec.stack(before), rec.stack(after), rec.thread()))
