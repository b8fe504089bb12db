"""Calls of compiled graphs in a row, one after the other: what runs in graphs, and whose the time between them is.

Time is counted from the begin of a call to that of the next, whatever thread makes it: so nothing is cut off where the
row begins and ends. Between two calls on one thread lies the program's own code. Where the second is of the piece that
follows a graph break, and the last call of the function before it was of an earlier piece, that code is the break's;
calls of other graphs in between, which the broken line makes, are not, and what lies within two pieces of an inner
function is that function's. Backward graphs run the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence as Several
from typing import NamedTuple

import msgspec

from xlaprof.analysis.sums import RECORDS, Tally, add_bounded

_THREADS = 64  # followed
_REMEMBERED = 1_024  # stretches of a thread between calls
_DEPTH = 16  # of calls within calls

#: of a function: Stack id of its definition, Text id of its name, Stack id of the break it goes on behind; backward
Piece = tuple[int, int, int, bool]


class Graph(NamedTuple):
    """A timed graph."""

    piece: Piece
    line: int  # of the break; 0: it begins at the function's top


class Call(NamedTuple):
    """Of a graph; moments in ns."""

    begin: int
    end: int
    graph: Graph
    tid: int
    steps: int  # that ended since the call before began


class Spent(Tally):
    """What calls in a row took. Nanoseconds."""

    span: int = 0  # from the begin of a call to that of the next, in all
    ran: int = 0  # of which at least one graph ran
    steps: int = 0  # that ended
    calls: dict[Piece, int] = msgspec.field(default_factory=dict)
    took: dict[Piece, int] = msgspec.field(default_factory=dict)  # without calls of other graphs within
    breaks: dict[Piece, int] = msgspec.field(
        default_factory=dict
    )  # times that a break was measured, by the piece behind it
    between: dict[Piece, int] = msgspec.field(default_factory=dict)  # what lies between the two pieces

    def times(self, many: int, of: int) -> Spent:
        """``many / of`` times as much."""

        def scaled(number: int) -> int:
            return number * many // of

        tables = (self.calls, self.took, self.breaks, self.between)
        return Spent(
            scaled(self.span),
            scaled(self.ran),
            scaled(self.steps),
            *({piece: scaled(number) for piece, number in table.items()} for table in tables),
        )


class _Thread:
    def __init__(self) -> None:
        self.open: list[Call] = []  # calls that had not ended when the latest began
        self.end = 0  # of the latest call
        self.stretches: list[int] = []  # between calls; 0: it is somebody's
        #: function and direction -> its latest call, and how many stretches there were
        self.latest: dict[tuple[int, int, bool], tuple[Graph, int]] = {}

    def forget(self) -> None:
        self.stretches.clear()
        self.latest.clear()


class Sequence:
    """Takes the calls of a row in the order of their begin."""

    def __init__(self) -> None:
        self.all = Spent()
        self.whole = Spent()  # whole steps, in which nothing was compiled
        self.count = 0  # calls
        self._step = Spent()  # since the begin of a step
        self._clean = False  # it was seen from its first call on, and nothing was compiled in it
        self._at = 0  # the begin of the latest call
        self._new = False  # it was the first of its graph
        self._covered = 0  # graphs ran until then
        self._threads: dict[int, _Thread] = {}

    def add(self, call: Call, new: bool, compiled: Several[tuple[int, int]]) -> None:
        """``new``: the first of its graph, which sets up what later ones find; ``compiled``: when something was."""
        apart = not self.count or any(begin < call.begin and end > self._at for begin, end in compiled)
        if self.count:
            self._advance(call, apart or self._new)
        self.count += 1
        self._new = new
        self._clean = self._clean and not new
        self._at, self._covered = call.begin, max(self._covered, call.end)
        thread = self._threads.get(call.tid)
        if thread is None:
            if len(self._threads) >= _THREADS:
                return
            thread = self._threads[call.tid] = _Thread()
        self._count(call, thread, apart, new)

    def _advance(self, call: Call, apart: bool) -> None:
        """From the latest call to this one."""
        if not apart:
            ran = max(0, min(self._covered, call.begin) - self._at)
            for spent in (self.all, self._step):
                spent.span += call.begin - self._at
                spent.ran += ran
        self._clean = self._clean and not apart
        if call.steps:
            self.all.steps += call.steps
            if self._clean:
                self._step.steps = call.steps
                self.whole.merge(self._step)
            self._step, self._clean = Spent(), True

    def _count(self, call: Call, thread: _Thread, apart: bool, new: bool) -> None:
        while thread.open and thread.open[-1].end <= call.begin:
            thread.open.pop()
        took, within = call.end - call.begin, thread.open[-1] if thread.open else None
        for spent in () if new else (self.all, self._step):
            add_bounded(spent.calls, call.graph.piece, 1, RECORDS)
            add_bounded(spent.took, call.graph.piece, took, RECORDS)
            if within is not None:
                add_bounded(spent.took, within.graph.piece, -took, RECORDS)
        if len(thread.open) < _DEPTH:
            thread.open.append(call)
        if within is not None:
            return
        if apart:
            thread.forget()  # what was compiled in between is no time of a break's
        elif thread.end:
            self._between(call, thread)
        if len(thread.stretches) >= _REMEMBERED or len(thread.latest) >= _REMEMBERED:
            thread.forget()
        code, func, _, backward = call.graph.piece
        thread.latest[code, func, backward] = call.graph, len(thread.stretches)
        thread.end = call.end

    def _between(self, call: Call, thread: _Thread) -> None:
        """What lies before a call on its thread, and, if it is the second piece beside a break, since the first."""
        thread.stretches.append(max(0, call.begin - thread.end))
        code, func, _, backward = call.graph.piece
        before, begun = thread.latest.get((code, func, backward), (None, 0))
        if before is None:
            return
        first, second = (call.graph, before) if backward else (before, call.graph)
        if first.line < second.line:
            ns = sum(thread.stretches[begun:])
            thread.stretches[begun:] = [0] * (len(thread.stretches) - begun)
            for spent in (self.all, self._step):
                add_bounded(spent.breaks, second.piece, 1, RECORDS)
                add_bounded(spent.between, second.piece, ns, RECORDS)
