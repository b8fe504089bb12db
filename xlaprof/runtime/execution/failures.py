"""Failures of a graph: the error names the operation and the user's line; all other values are computed.

A graph fails when it is compiled, when it is handed over (memory), or on the device, later. Then

* the barrier or read raises the error, which names the operation that failed and its line; if memory was short, the
  operation with the largest value;
* live values that do not depend on that operation are computed all the same;
* a tensor that the graph overwrites keeps its value of the last barrier, if its buffer still exists: as in a program
  that stopped at the failing line, the write did not take place;
* any other tensor is :class:`~xlaprof.runtime.trace.storage.Failed`: using it raises the error again.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from xlaprof.runtime.tape.graph import Graph, graph_text, place, reads
from xlaprof.runtime.trace.errors import final, is_final, raise_failed
from xlaprof.runtime.trace.storage import Failed, Storage
from xlaprof.runtime.trace.trie import Node
from xlaprof.text.quantities import size_text

from . import inflight
from .build import Broken

if TYPE_CHECKING:
    import jax

    from xlaprof.recording.stacks import RawFrame
    from xlaprof.runtime.tape.tape import Tape

#: attempts to run the rest of a graph, each without the values that depend on the operation that failed before
ATTEMPTS = 3

#: The failure of another rank behind an error of a collective, if there is one; set by
#: :mod:`xlaprof.runtime.distributed` in a job of several processes.
failed_rank: Callable[[BaseException], RuntimeError | None] | None = None


class NoValue(Exception):
    """A value was read on an abstract tape, which has none."""

    _xla_final = True


class OutOfMemory(Exception):
    """A program needs more memory (``bytes``) than its device has; nothing was allocated."""

    def __init__(self, needed: int) -> None:
        super().__init__(f"the program needs {size_text(needed)}")
        self.bytes = needed


def explain(error: Exception, tape: Tape, graph: Graph, frames: tuple[RawFrame, ...]) -> RuntimeError:
    """The error to raise for ``error``, which ended the compilation or the start of ``graph``, cut at ``frames``.

    ``torch.OutOfMemoryError`` if memory was short, ``RuntimeError`` otherwise.
    """
    failure = _of_another_rank(error)
    if failure is not None:
        return failure
    text = str(error).strip()
    raised: RuntimeError
    culprit: Node | None = None
    whole = f"{graph_text(graph)}, cut at {frames[0].file}:{frames[0].line}" if frames else graph_text(graph)
    if isinstance(error, Broken):
        culprit, cause = error.node, error.__cause__ or error
        raised = RuntimeError(f"{place(error.node)} cannot be compiled for xla: {type(cause).__name__}: {cause}")
    elif isinstance(error, OutOfMemory) or "RESOURCE_EXHAUSTED" in text or "Out of memory" in text:
        culprit = max((node for node in graph.nodes if node.outs), key=_weight, default=None)  # the first of them
        asked = re.search(r"allocat\w* (\d+) bytes", text)
        size = error.bytes if isinstance(error, OutOfMemory) else int(asked[1]) if asked else 0
        tried = f" Tried to allocate {size_text(size)}" if size else ""
        limit = memory_limit(tape.device)
        has = f"; the device has {size_text(limit)}" if limit else ""
        where = "Its inputs are all there is"
        if culprit is not None:
            most = size_text(_weight(culprit)[0])
            own = f" of {most} (the rest is what the program holds beside it)" if size_text(size) != most else ""
            where = f"{place(culprit)} makes the largest value, {culprit.sig}{own}"
        raised = torch.OutOfMemoryError(
            f"{tape.torch_device} out of memory.{tried}{has}. {where}, in {whole}. "
            f"Make the batch smaller, or cut the graph earlier with sync(). ({(text or 'no message').splitlines()[0]})"
        )
    else:
        raised = RuntimeError(f"{whole}, failed on {tape.torch_device}: {text}")
    raised._xla_culprit = culprit  # type: ignore[attr-defined]
    return final(raised)


def _weight(node: Node) -> tuple[int, bool]:
    """Bytes of the largest output; then whether the program called the operation itself."""
    size = max(math.prod(out.sig.shape) * out.dtype.itemsize for out in node.outs)
    return size, node.op is not None and node.op.func is not None


@functools.cache
def memory_limit(device: jax.Device) -> int:
    """Bytes of memory of ``device``; 0: not known."""
    stats = device.memory_stats()
    if stats and stats.get("bytes_limit"):
        return int(stats["bytes_limit"])
    if device.platform != "cpu":
        return 0
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


# -- on the device ------------------------------------------------------------------------------------


def raise_unreported(tape: Tape | None = None) -> None:
    """Raise the error of an execution (of ``tape``) that failed on the device, unless it was raised before."""
    run = inflight.unreported(tape)
    if run is not None:
        assert run.error is not None
        if is_final(run.error):  # a debug check's
            raise run.error
        raise _on_device(run.error, graph_text(run.graph), run.tape) from run.error


def raise_unchecked(storages: list[Storage], arrays: list[Any]) -> None:
    """Raise the error of debug checks in the programs that made ``arrays``, the values of ``storages``."""
    run = inflight.settle(arrays)
    if run is not None:
        assert run.error is not None
        for storage, array in zip(storages, arrays, strict=True):
            if storage.array is array:
                storage.array = Failed(type(run.error), str(run.error))
        raise run.error


def unreadable(storages: list[Storage], arrays: list[Any], error: Exception) -> RuntimeError:
    """The error to raise for ``error`` in a read of ``storages``; those without a value become failed."""
    first: RuntimeError | None = None
    for storage, array in zip(storages, arrays, strict=True):
        try:
            array.block_until_ready()
        except Exception as cause:
            found = inflight.origin(array)
            made = storage.sig.text
            if found is not None:
                run, slot = found
                made = next(
                    f"{storage.sig} of {place(n)}," for n in run.graph.nodes for out in n.outs if out.slot == slot
                )
            failed = _on_device(cause, made, storage.tape)
            if storage.array is array:
                storage.array = Failed(type(failed), str(failed))
            first = first or failed
    return first or _on_device(error, "a graph", storages[0].tape)


def _of_another_rank(error: Exception) -> RuntimeError | None:
    """The failure of the rank at the other end, if ``error`` is a collective's about its connection."""
    failure = None if failed_rank is None else failed_rank(error)
    return None if failure is None else final(failure)


def _on_device(error: Exception, what: str, tape: Tape) -> RuntimeError:
    failure = _of_another_rank(error)
    if failure is not None:
        return failure
    kind = torch.OutOfMemoryError if "RESOURCE_EXHAUSTED" in str(error) else RuntimeError
    return final(kind(f"{what} failed on {tape.torch_device}: {error}"))


# -- after a failed barrier ---------------------------------------------------------------------------


def dependents(end: Node, culprit: Node) -> set[int]:
    """Slots on the trace to ``end`` whose values depend on ``culprit``."""
    slots: set[int] = set()
    for node in end.path():
        if node is culprit or not slots.isdisjoint(reads(node)):
            slots.update(out.slot for out in node.outs)
    return slots


def give_up(storage: Storage, error: BaseException) -> None:
    """The new value of ``storage`` is lost: it keeps its old one if that still exists, or becomes failed."""
    before = storage.array
    if before is None or (type(before) is not Failed and before.is_deleted()):
        storage.array = Failed(type(error), str(error))


def raise_if_failed(storage: Storage) -> None:
    """Raise the error of ``storage``'s computation, if it failed."""
    if type(storage.array) is Failed:
        raise_failed(storage.array)
