"""TorchTPU's batches become events of a recording."""

from __future__ import annotations

from collections.abc import Callable

from xlaprof.bounds import cut
from xlaprof.events import TorchTpuBatch
from xlaprof.recording.stacks import RawFrame

from .batches import Batch
from .graphs import Known


class Emitter:
    """Makes the events of one recording, in order."""

    def __init__(self, text: Callable[[str], int], place: Callable[[RawFrame], int]) -> None:
        """``text`` and ``place`` give out the recording's ids of a name and of a line of the program."""
        self._text, self._place = text, place
        self._known = Known()
        self.batches = self.made = 0
        self.seconds = 0.0  # in making programs

    def event(self, batch: Batch, t: int) -> TorchTpuBatch:
        """The event of a batch that began at ``t`` (ns of the recording)."""
        graph = self._known.parsed(batch.graph)
        made = not batch.cached and not batch.failed
        found = self._known.difference(graph) if made else None
        if not batch.failed:
            self._known.add(graph)
        self.batches += 1
        self.made += made
        self.seconds += made * batch.dur / 1e9
        return TorchTpuBatch(
            t,
            batch.dur,
            self._text(cut(batch.name)),
            cut(batch.reason),
            cached=batch.cached,
            failed=batch.failed,
            ops=graph.ops,
            stack=self._place(graph.last) if graph.last is not None else 0,
            line=self._place(found.place) if found is not None and found.place is not None else 0,
            old=found.old if found is not None else "",
            new=found.new if found is not None else "",
        )
