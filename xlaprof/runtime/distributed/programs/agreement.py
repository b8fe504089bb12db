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

#: (ranks, digest) of agreed graphs: one that is compiled again with other numbers needs no meeting
_agreed: set[tuple[tuple[int, ...], str]] = set()
_NONE = (0, "")


class Program:
    """A program with collectives that its ranks have agreed on."""

    def __init__(self, link: Link, ranks: tuple[int, ...], digest: str, varies: bool) -> None:
        self.varies = varies  # it may differ from rank to rank: XLA must keep the order of its exchanges
        self._link = link
        self._ranks = ranks
        self._digest = digest

    def launching(self) -> None:
        """Count a launch of the program, and report it if the launch before was another program's."""
        at, before = self._link.turns.get(self._ranks, _NONE)
        self._link.turns[self._ranks] = (at + 1, self._digest)
        if before != self._digest:
            self._link.report_switch(self._ranks, at + 1, self._digest)


def agree(graph: Graph, ranks: tuple[int, ...]) -> Program | None:
    """Return when all of ``ranks`` are about to compile ``graph``, or one with the same outline.

    ``None`` in a world of one. Raises :class:`~.faults.RankFailure` on all ranks where one has another graph: the
    message names the first operation that differs and both ranks' lines.
    """
    link = world.link()
    if link is None or len(ranks) == 1:
        return None
    common = outline(graph, len(ranks))
    # Only their order distinguishes several exchanges, and a rank may compile this graph again with other numbers or
    # other live results: XLA must not choose an order of its own.
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
