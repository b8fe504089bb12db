"""torch.utils.data: how long a program waits for the next batch of a DataLoader, in any framework.

While a recording is on, the method by which every DataLoader hands out a batch is timed.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from xlaprof import events
from xlaprof.vocabulary import STANDARD

if TYPE_CHECKING:
    from xlaprof.recording.recorder import Recorder

_WORTH_NS = 50_000  # a wait that is shorter explains nothing, and costs nothing


class DataLoaders:
    name = "torch.utils.data"
    module = "torch.utils.data.dataloader"
    vocabulary = STANDARD

    def attach(self, rec: Recorder) -> _Attached:
        return _Attached(rec)


class _Attached:
    def __init__(self, rec: Recorder) -> None:
        from torch.utils.data.dataloader import _BaseDataLoaderIter as Batches

        from xlaprof.recording import recorder
        from xlaprof.recording.stacks import user_frames

        self._batches: Any = Batches
        self._draw = draw = Batches.__next__

        def __next__(batches: Any) -> Any:
            start = perf_counter_ns()
            try:
                return draw(batches)
            finally:
                took = perf_counter_ns() - start
                if took >= _WORTH_NS and recorder.active is rec:  # none is in a fork's child
                    rec.emit(events.DataWait(start, took, rec.stack(user_frames()), rec.thread()))

        self._timed = Batches.__next__ = __next__  # type: ignore[assignment, method-assign]

    def counters(self) -> tuple[dict[str, int], dict[str, float]]:
        return {}, {}

    def detach(self) -> None:
        if self._batches.__next__ is self._timed:
            self._batches.__next__ = self._draw


LIVE = DataLoaders()
