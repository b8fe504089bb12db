"""Bursts: eager operations that follow each other closely are one execution in the log.

So a log grows with time, not with operations: an ``Execute`` every :data:`LONGEST`, or where the host paused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xlaprof.recording import stacks
from xlaprof.runtime.clock import HOLE_NS
from xlaprof.runtime.execution import inflight
from xlaprof.runtime.execution.inflight import InFlight

if TYPE_CHECKING:
    from xlaprof.runtime.execution.program import Program
    from xlaprof.runtime.tape.graph import Graph
    from xlaprof.runtime.tape.tape import Tape

#: ns after which a burst is emitted
LONGEST = 20_000_000


class Burst(InFlight, eq=False):
    """Consecutive operations on one device, as one execution."""

    end: int = 0  # ns: when the last call returned


_open: dict[int, Burst] = {}


def note(tape: Tape, graph: Graph, program: Program, start: int, took: int, results: list[Any]) -> None:
    """Add an operation to the burst, while a recording is on; its call took ``took`` ns from ``start`` on."""
    burst = _open.get(tape.index)
    if burst is None or start - burst.end > HOLE_NS or start - burst.enqueued > LONGEST:
        if burst is not None:
            inflight.add_burst(burst, burst.end)
        frames = stacks.user_frames()
        burst = _open[tape.index] = Burst(tape, 0, [], start, 0, None, "eager", frames, graph, calls=0)
    burst.calls += 1
    burst.enqueue += took
    burst.end = start + took
    burst.graph, burst.number, burst.token = graph, program.number, results[-1]


def close(tape: Tape | None = None) -> None:
    """Emit the open bursts, of ``tape`` or of all."""
    for index in list(_open):
        if tape is None or tape.index == index:
            burst = _open.pop(index)
            inflight.add_burst(burst, burst.end)
