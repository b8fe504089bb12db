"""Traces that new ones are compared with, to say how their graphs differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from xlaprof.recording.stacks import RawFrame
    from xlaprof.runtime.trace.trie import Node

    from .graph import Graph

#: traces remembered on a tape, and how many of them when the trie is full: they hold on to nodes
KNOWN, KEPT = 256, 16


class Ran(Protocol):
    """What is asked of a compiled program."""

    number: int
    scalars: Any  # the packed floats and ints that it was given last; None: it has not run


class KnownTrace(NamedTuple):
    """A trace that ended with a set of live values for the first time."""

    trigger: str
    place: tuple[RawFrame, ...]  # the barrier; empty where nobody recorded
    end: Node
    graph: Graph
    key: tuple[Any, ...]  # of its plan, at its end
    made: tuple[tuple[RawFrame, ...], ...]  # lines that made the graph's inputs
    updates: frozenset[int]  # ids of what an optimizer reads in it from before: the parameters it updates
    program: Callable[[], Ran | None]  # what its graph was compiled to; None: forgotten


def latest(known: Iterable[KnownTrace]) -> list[KnownTrace]:
    """The few that were used last."""
    return sorted(known, key=lambda trace: trace.end.last_used)[-KEPT:]
