"""torch.utils.data: how long a program waits for the next batch of a DataLoader, and what makes it, in any framework.

While a recording is on, the method by which every DataLoader hands out a batch is timed.
"""

from __future__ import annotations

import dis
import os
import weakref
from functools import cache, partial
from time import perf_counter_ns
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from xlaprof import events
from xlaprof.recording.stacks import RawFrame, is_library
from xlaprof.vocabulary import STANDARD

if TYPE_CHECKING:
    from xlaprof.recording.recorder import Recorder

_WORTH_NS = 50_000  # a wait that is shorter explains nothing, and costs nothing
_WRAPPED = 3  # functions within one another
#: by these names a collate function finds the size that it pads to
_SIZING = frozenset({"pad_sequence", "pad", "max", "amax", "maximum"})


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
        seen: dict[int, tuple[int, int]] = {}  # stack -> ids of what makes the batches there: looked at once
        known: set[tuple[int, int]] = set()
        begun: weakref.WeakSet[Any] = weakref.WeakSet()  # passes with workers of their own

        def __next__(batches: Any) -> Any:
            start = perf_counter_ns()
            try:
                return draw(batches)
            finally:
                took = perf_counter_ns() - start
                if took >= _WORTH_NS and recorder.active is rec:  # none is in a fork's child
                    stack = rec.stack(user_frames())
                    rec.emit(events.DataWait(start, took, stack, rec.thread()))
                    makers = id(getattr(batches, "_collate_fn", None)), id(getattr(batches, "_dataset", None))
                    workers = 0 if batches in begun else workers_of(batches)
                    if workers:
                        begun.add(batches)
                    if seen.get(stack) != makers or workers:
                        seen[stack] = makers
                        code, collated = maker(batches)
                        made = rec.stack(_place(code, sizes=collated)) if code is not None else 0
                        if workers or (made and (stack, made) not in known):
                            known.add((stack, made))
                            wait = took if workers else 0
                            rec.emit(events.Batches(start, stack, made, collated, workers, wait))

        self._timed = Batches.__next__ = __next__  # type: ignore[assignment, method-assign]

    def counters(self) -> tuple[dict[str, int], dict[str, float]]:
        return {}, {}

    def detach(self) -> None:
        if self._batches.__next__ is self._timed:
            self._batches.__next__ = self._draw


def workers_of(batches: Any) -> int:
    """How many processes a DataLoader's iterator has started that end with its pass; 0: they stay, or none."""
    return 0 if getattr(batches, "_persistent_workers", False) else getattr(batches, "_num_workers", 0)


def maker(batches: Any) -> tuple[CodeType | None, bool]:
    """The user's code that makes the batches of a DataLoader's iterator, and whether that is the collate function."""
    collate = users_code(getattr(batches, "_collate_fn", None))
    if collate is not None:
        return collate, True
    dataset = getattr(batches, "_dataset", None)
    for _ in range(_WRAPPED):  # torch's Subset has the user's
        kind = type(dataset)
        found = users_code(getattr(kind, "__getitem__", None)) or users_code(getattr(kind, "__iter__", None))
        if found is not None:
            return found, False
        dataset = getattr(dataset, "dataset", None)
    return None, False


def users_code(called: Any, depth: int = _WRAPPED) -> CodeType | None:
    """The code of a callable, if it is the user's: also of one that an object of a library's keeps, or a partial."""
    if isinstance(called, partial):
        called = called.func
    if isinstance(called, MethodType):
        called = called.__func__
    if isinstance(called, FunctionType):
        return None if is_library(called.__code__.co_filename, called.__module__) else called.__code__
    if called is None or isinstance(called, type) or not depth:
        return None
    own = users_code(vars(type(called)).get("__call__"), 0)
    kept = (users_code(one, depth - 1) for one in getattr(called, "__dict__", {}).values() if callable(one))
    return own or next(filter(None, kept), None)


@cache
def _place(code: CodeType, *, sizes: bool) -> tuple[RawFrame, ...]:
    """Of a function that ``sizes`` batches the line that finds a size; its first line, where none does."""
    named = (one for one in dis.get_instructions(code) if one.argval in _SIZING and one.positions is not None)
    line = next((one.positions.lineno for one in named if one.positions and one.positions.lineno), None) if sizes else 0
    file = code.co_filename
    return (
        RawFrame(
            file if file.startswith("<") else os.path.abspath(file), line or code.co_firstlineno, code.co_qualname
        ),
    )


LIVE = DataLoaders()
