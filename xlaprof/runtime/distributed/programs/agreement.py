"""Ranks agree on a program before they compile it, and report when they switch to another one.

Before a graph with collectives is compiled its ranks meet, and the coordinator checks that they recorded the same
operations (:mod:`.alike`, :mod:`.ledger`). Later launches cost one comparison. A rank reports only a switch to another
program, in a few microseconds, so that the coordinator also finds ranks that run known programs in different orders.
"""

from __future__ import annotations

from xlaprof.runtime.distributed.job import faults, world
from xlaprof.runtime.distributed.job.link import Link
from xlaprof.runtime.tape.graph import Graph, reads

from .alike import outline

#: what the ranks were found to have in common: compiled again with other numbers, it needs no meeting
_agreed: set[tuple[tuple[int, ...], str]] = set()
_NONE = (0, "")


class Program:
    """A program with collectives, as its ranks have it in common."""

    def __init__(self, link: Link, ranks: tuple[int, ...], digest: str, varies: bool) -> None:
        self.varies = varies  # or may, from rank to rank: its exchanges are held in their order
        self._link = link
        self._ranks = ranks
        self._digest = digest

    def launching(self) -> None:
        """This rank launches the program now."""
        at, before = self._link.turns.get(self._ranks, _NONE)
        self._link.turns[self._ranks] = (at + 1, self._digest)
        if before != self._digest:
            self._link.report_switch(self._ranks, at + 1, self._digest)


def agree(graph: Graph, ranks: tuple[int, ...]) -> Program | None:
    """Return when all of ``ranks`` are about to compile ``graph``, or one that is like it.

    ``None`` in a world of one. Raises :class:`~.faults.RankFailure`, on all of them, where another graph comes: it
    names the first operation that differs and the line of both ranks.
    """
    link = world.link()
    if link is None or len(ranks) == 1:
        return None
    common = outline(graph, len(ranks))
    # Only their order distinguishes several exchanges, and a rank may compile this graph again with other numbers or
    # other results to keep: XLA must not choose an order of its own.
    several = sum(len(reads(node)) for node in graph.nodes if getattr(node.op, "collective", False)) > 1
    if (ranks, common.digest) in _agreed:
        return Program(link, ranks, common.digest, True)
    at = link.turns.get(ranks, _NONE)[0] + 1
    link.send({"kind": "outline", "digest": common.digest}, common.pack())
    link.report_switch(ranks, at, common.digest)
    tag = f"compilation for execution {at} of those with collectives"
    hashes = link.meet(tag, graph.hash.encode(), ranks)
    if hashes is None:
        raise faults.verdict() or faults.RankFailure("the world has failed")
    _agreed.add((ranks, common.digest))
    return Program(link, ranks, common.digest, several or len(set(hashes)) > 1)
