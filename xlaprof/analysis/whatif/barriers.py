"""The graphs that a run would have compiled without some of its barriers.

The order of the cuts is played again: what ran between two cuts that remain becomes one graph. Two parts of a step that
vary each by themselves (four batch sizes before a barrier, an optimizer every second time after it) are few graphs
apart and many together, so a barrier in the middle of a step may well pay.

A graph of several parts takes as long to compile as its different parts do. Left out on both sides is warm-up: the
first graph of a cut, where it never comes back (an optimizer that makes its state).

Nor does it pay where nothing ends the turns of a loop any more: all the steps of an epoch would be one graph, until the
evaluation's barrier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from typing import NamedTuple

from xlaprof.analysis.fold.cuts import Cut
from xlaprof.analysis.fold.totals import Totals
from xlaprof.analysis.principles import MOST

Graph = tuple[int, ...]  # programs that run one after the other


class Graphs(NamedTuple):
    """Different graphs, and the seconds to compile them."""

    number: int
    seconds: float


class Without(NamedTuple):
    """A run's graphs as recorded, and without some barriers; None: no cut would remain."""

    now: Graphs
    then: Graphs | None
    ends_turns: bool = True  # whether a barrier still ends the turns of the loops in which some go

    def pays(self, saved_s: float = 0.0) -> bool:
        """Whether it compiles no more graphs, and no longer than by the ``saved_s`` that the barriers cost."""
        now, then, ends_turns = self
        return ends_turns and then is not None and then.number <= now.number and then.seconds <= now.seconds + saved_s


def without(run: Totals, stacks: Container[int]) -> Without:
    """The run without the barriers at these stacks."""
    return without_those(run, lambda cut: cut[0] in stacks)


def without_those(run: Totals, goes: Callable[[Cut], bool]) -> Without:
    """The run without the cuts for which ``goes`` is true."""
    took: dict[int, int] = {}
    for record in run.compiles:
        took[record.program] = took.get(record.program, 0) + record.dur
    played = play(run.cuts, goes)
    return Without(_compiled(play(run.cuts), took), _compiled(played, took) if played else None, _ends_turns(run, goes))


def _ends_turns(run: Totals, goes: Callable[[Cut], bool]) -> bool:
    """Whether the next barrier that remains mostly lies in the loop of those that go, or follows each of them once."""
    ended: Counter[bool] = Counter()
    gone: Counter[int] = Counter()  # since the last barrier that remains
    for cut in run.cuts:
        site = run.sites.get(cut[0])  # None where a damaged log has no barrier at that line
        if goes(cut):
            gone[cut[0]] += 1
        elif gone and (site is None or site.trigger != "read"):
            for stack, count in gone.items():
                ended[count == 1 or run.names.shares_loop(stack, cut[0])] += count
            gone.clear()
    return ended[True] >= MOST * ended.total()


def play(cuts: Iterable[Cut], goes: Callable[[Cut], bool] = lambda cut: False) -> list[tuple[int, Graph]]:
    """The graphs in order, each with the stack that ends it, where cuts that go end none."""
    played: list[tuple[int, Graph]] = []
    parts: list[int] = []
    for cut in cuts:
        parts.append(cut[1])
        if not goes(cut):
            played.append((cut[0], tuple(parts)))
            parts.clear()
    return played


def _compiled(played: list[tuple[int, Graph]], took: Mapping[int, int]) -> Graphs:
    runs = Counter(graph for _, graph in played)
    first: dict[int, Graph] = {}
    for stack, graph in played:
        first.setdefault(stack, graph)
    warm_up = {graph for graph in first.values() if runs[graph] == 1}
    graphs = [graph for graph in runs if graph not in warm_up]
    return Graphs(len(graphs), sum(took.get(part, 0) for graph in graphs for part in set(graph)) / 1e9)
