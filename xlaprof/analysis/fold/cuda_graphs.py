"""CUDA graphs in a recording: each that was recorded, and what runs without. Nothing is concluded here."""

from __future__ import annotations

from xlaprof.analysis.names import Ids
from xlaprof.analysis.sums import RECORDS
from xlaprof.events import CudaGraph, NoCudaGraph

_STACKS, _TEXTS = ("stack", "code", "resumed", "line"), ("func",)


class CudaGraphs:
    """Of one recording, in order. Ids are the recording's own."""

    def __init__(self) -> None:
        self.recorded: list[CudaGraph] = []
        self.without: list[NoCudaGraph] = []
        self.further = 0  # recorded, and not kept

    def on(self, event: CudaGraph | NoCudaGraph) -> None:
        if isinstance(event, NoCudaGraph):
            if len(self.without) < RECORDS:
                self.without.append(event)
        elif len(self.recorded) < RECORDS:
            self.recorded.append(event)
        else:
            self.further += 1

    def merge(self, other: CudaGraphs, ids: Ids) -> None:
        """Add another recording's, which stays as it is, its ids mapped to ours."""
        self.recorded += (ids.mapped(one, _STACKS, _TEXTS) for one in other.recorded)
        self.without += (ids.mapped(one, _STACKS, _TEXTS) for one in other.without)
        self.further += other.further
