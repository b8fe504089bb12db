"""The timed calls of one recording: windows of calls, each of which stands for the calls left out before it, too."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from xlaprof.analysis.names import Ids
from xlaprof.analysis.sums import RECORDS, add_counts
from xlaprof.events import GraphCalls, TimedGraph

from .sequence import Call, Graph, Piece, Sequence, Spent

_COMPILATIONS = 1_000
_UNKNOWN = Graph((0, 0, 0, False), 0)


class Ran:
    """Nothing is concluded here. Ids are the recording's own."""

    def __init__(self) -> None:
        self.graphs = 0  # that were timed, or could have been
        self.timed = self.skipped = 0  # calls
        self._all, self._whole = Spent(), Spent()
        self._graphs: dict[int, Graph] = {}
        self._called: set[int] = set()  # graphs
        self._row = Sequence()  # of windows that join each other
        self._before = 0  # calls that were left out before it
        self._compiled: deque[tuple[int, int]] = deque(maxlen=_COMPILATIONS)  # begin and end of what was compiled

    def on_graph(self, event: TimedGraph) -> None:
        self.graphs += 1
        if len(self._graphs) >= RECORDS:
            self._graphs.clear()
        piece = event.code, event.func, event.resumed, event.backward
        self._graphs[event.graph] = Graph(piece, event.line)
        self._called.discard(event.graph)

    def on_compiled(self, t: int, dur: int) -> None:
        """Something was compiled: a function, or what lies behind it."""
        self._compiled.append((t, t + dur))

    def on_calls(self, event: GraphCalls) -> None:
        if not event.joined:
            self._settle()
            self._before = event.skipped
        self.skipped += event.skipped
        calls = list(_calls(event, self._graphs))
        if not calls:
            return
        begin = calls[0].begin
        compiled = [one for one in self._compiled if one[1] > begin]
        for number, call in zip(event.graphs[event.joined :], calls[event.joined :], strict=False):
            new = number not in self._called
            if new and len(self._called) < RECORDS:
                self._called.add(number)
            self._row.add(call, new, compiled)
            self.timed += 1

    @property
    def all(self) -> Spent:
        """What the calls took that were timed, as of all calls."""
        return _sum(self._all, self._weighed(self._row.all))

    @property
    def whole(self) -> Spent:
        """The same of whole steps, in which nothing was compiled; steps of more calls than a window has are none."""
        return _sum(self._whole, self._weighed(self._row.whole))

    def _weighed(self, spent: Spent) -> Spent:
        count = self._row.count
        return spent.times(count + self._before, count) if self._before and count else spent

    def _settle(self) -> None:
        """The row is over."""
        self._all.merge(self._weighed(self._row.all))
        self._whole.merge(self._weighed(self._row.whole))
        self._row, self._before = Sequence(), 0

    def merge(self, other: Ran, ids: Ids) -> None:
        """Add another recording's, which stays as it is, its ids mapped to ours."""

        def ours(piece: Piece) -> Piece:
            code, func, resumed, backward = piece
            return ids.stack(code), ids.text(func), ids.stack(resumed), backward

        self.graphs += other.graphs
        self.timed += other.timed
        self.skipped += other.skipped
        for mine, theirs in ((self._all, other.all), (self._whole, other.whole)):
            mine.span += theirs.span
            mine.ran += theirs.ran
            mine.steps += theirs.steps
            for name in ("calls", "took", "breaks", "between"):
                add_counts(getattr(mine, name), getattr(theirs, name), ours)


def _sum(*several: Spent) -> Spent:
    made = Spent()
    for one in several:
        made.merge(one)
    return made


def _calls(event: GraphCalls, graphs: dict[int, Graph]) -> Iterator[Call]:
    """The calls of a window; of columns that do not fit each other as many as all have."""
    begin, count = event.t, len(event.graphs)
    tids, steps = event.tids or [event.tid] * count, event.steps or [0] * count
    for number, after, took, tid, ended in zip(event.graphs, event.after, event.took, tids, steps, strict=False):
        begin += after
        yield Call(begin, begin + took, graphs.get(number, _UNKNOWN), tid, ended)
