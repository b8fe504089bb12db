"""Traces that ran: the graph of a new one is compared with theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from xlaprof.recording.stacks import RawFrame
    from xlaprof.runtime.trace.trie import Node

    from .graph import Graph

#: traces remembered on a tape, and how many of them stay when the trie is pruned: they keep nodes alive
KNOWN, KEPT = 256, 16


class Ran(Protocol):
    """A compiled program."""

    number: int
    scalars: Any  # the packed floats and ints of its last run; None: it has not run


class KnownTrace(NamedTuple):
    """A trace that ended with a set of live values for the first time."""

    trigger: str
    place: tuple[RawFrame, ...]  # the barrier; empty where nobody recorded
    end: Node
    graph: Graph
    key: tuple[Any, ...]  # of its plan, at its end
    made: tuple[tuple[RawFrame, ...], ...]  # lines that made the graph's inputs
    updates: frozenset[int]  # ids of the graph's inputs that an optimizer reads: the parameters it updates
    settings: dict[tuple[str, str], dict[str, str]]  # the program's variables, by file and function
    program: Callable[[], Ran | None]  # compiled from its graph; None: forgotten
