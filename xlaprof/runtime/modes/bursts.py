"""Eager operations as a recording sees them: those that follow each other closely are one execution in the log.

So a log grows with time, not with operations: an ``Execute`` at most every :data:`LONGEST`, or where the host paused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xlaprof.recording import stacks
from xlaprof.runtime.clock import HOLE_NS
from xlaprof.runtime.execution import inflight

if TYPE_CHECKING:
    from xlaprof.recording.stacks import RawFrame
    from xlaprof.runtime.execution.program import Program
    from xlaprof.runtime.tape.graph import Graph
    from xlaprof.runtime.tape.tape import Tape

#: ns after which a burst is told
LONGEST = 20_000_000


class Burst:
    """Operations that were run one after the other on one device."""

    __slots__ = ("calls", "end", "enqueue", "frames", "graph", "program", "start", "tape", "token")

    def __init__(self, tape: Tape, start: int, frames: tuple[RawFrame, ...]) -> None:
        self.tape = tape
        self.start = start
        self.frames = frames
        self.enqueue = self.calls = 0
        self.end = start
        self.graph: Graph | None = None
        self.program: Program | None = None
        self.token: Any = None


_open: dict[int, Burst] = {}


def note(tape: Tape, graph: Graph, program: Program, start: int, took: int, results: list[Any]) -> None:
    """An operation was run, while a recording is on; the call took ``took`` ns from ``start`` on."""
    burst = _open.get(tape.index)
    if burst is None or start - burst.end > HOLE_NS or start - burst.start > LONGEST:
        if burst is not None:
            _tell(burst)
        burst = _open[tape.index] = Burst(tape, start, stacks.user_frames())
    burst.calls += 1
    burst.enqueue += took
    burst.end = start + took
    burst.graph, burst.program, burst.token = graph, program, results[-1]


def close(tape: Tape | None = None) -> None:
    """Tell what has not been told yet, of ``tape`` or of all."""
    for index in list(_open):
        if tape is None or tape.index == index:
            _tell(_open.pop(index))


def _tell(burst: Burst) -> None:
    assert burst.graph is not None
    assert burst.program is not None
    inflight.add_burst(
        burst.tape, burst.program, burst.start, burst.enqueue, burst.token, burst.frames, burst.graph, burst.calls,
        burst.end,
    )  # fmt: skip
