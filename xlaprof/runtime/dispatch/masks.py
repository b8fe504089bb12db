"""Masks among indices: ``x[mask]``, ``x[mask] = v``, and masks mixed with numbers.

A mask stands for the positions of its true elements: their number is read (:mod:`.dynamic_size_ops`), and the
dimensions that it covers become one. Writing through a single mask needs no size: each element knows its rank among
those selected (the lowering of ``index_put``). Nor does a mask on the host, whose elements are counted there.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any

import torch

from xlaprof import events
from xlaprof.recording import recorder, stacks
from xlaprof.runtime.shapes.rehearse import refuse_overlap
from xlaprof.runtime.trace import source
from xlaprof.runtime.trace.errors import final
from xlaprof.runtime.trace.ops import Op
from xlaprof.runtime.trace.tensor import XLATensor
from xlaprof.runtime.trace.trie import Node

from . import dynamic_size_ops, handlers
from .handlers import special
from .types import Args, Kwargs

aten = torch.ops.aten

_index_op = Op(aten.index.Tensor)
_index = handlers.functional(_index_op)

_DEPRECATED = "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead."
#: the registry of that warning: once per line
_warned: dict[Any, Any] = {}


def _is_mask(index: Any) -> bool:
    return index is not None and (index.dtype is torch.bool or index.dtype is torch.uint8)


@special("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(args: Args, kwargs: Kwargs) -> Any:
    """``x[indices]``."""
    tensor, indices = args
    if not any(map(_is_mask, indices)) or type(tensor) is not XLATensor:
        return _index(args, kwargs)
    _warn_of_bytes(indices)
    numbered = _numbered(_index_op, tensor, indices)
    return dynamic_size_ops.on_cpu(_index_op, args, kwargs) if numbered is None else _index(numbered, {})


def _put(func: torch._ops.OpOverload) -> None:
    op = Op(func)
    plain = handlers.inplace(op) if op.writes else handlers.functional(op)

    def record(args: Args, kwargs: Kwargs) -> Any:
        tensor, indices, values, *rest = args
        if not any(map(_is_mask, indices)) or type(tensor) is not XLATensor:
            return plain(args, kwargs)
        _warn_of_bytes(indices)
        if sum(i is not None for i in indices) == 1:
            _check_count(op, tensor, indices, values)
            return plain(args, kwargs)
        if op.writes:
            refuse_overlap(op, args, kwargs)
        numbered = _numbered(op, tensor, indices)
        if numbered is None:
            return dynamic_size_ops.on_cpu(op, args, kwargs)
        accumulate = rest[0] if rest else kwargs.get("accumulate", False)
        try:
            result = aten.index_put.default(*numbered, values, accumulate)
        except (RuntimeError, IndexError) as error:
            raise final(error) from None  # about the counts, which a rehearsal with the masks would not know
        result = dynamic_size_ops.reshaped(result, *tensor.shape)
        return tensor.copy_(result) if op.writes else result

    special(op.name)(record)


for _func in (
    aten.index_put.default,
    aten._unsafe_index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
):
    _put(_func)


def _check_count(op: Op, tensor: XLATensor, indices: Sequence[Any], values: torch.Tensor) -> None:
    """Raise if ``values`` does not fit the elements that the single mask selects, where their number is known."""
    at, mask = next((at, i) for at, i in enumerate(indices) if i is not None)
    size = dynamic_size_ops.known("nonzero", mask) if type(mask) is XLATensor and values.ndim else None
    if size is None:
        return
    if recorder.active is not None:
        _report(recorder.active, op, tensor)
    selected = [*tensor.shape[:at], size, *tensor.shape[at + mask.ndim :]]
    try:
        values.expand(selected)
    except RuntimeError:
        raise final(
            RuntimeError(
                f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of "
                f"shape {selected}"
            )
        ) from None


#: (path of the recording, id of a node) -> the node: traces whose writes through a mask were reported there
_reported: dict[tuple[str, int], Node] = {}
_REPORTED_LIMIT = 256


def _report(rec: recorder.Recorder, op: Op, tensor: XLATensor) -> None:
    """Record, once for each graph, a line that writes through a mask whose size was read."""
    node = tensor._storage.tape.node
    key = (rec.path, id(node))
    if key in _reported:
        return
    if len(_reported) >= _REPORTED_LIMIT:
        _reported.clear()
    _reported[key] = node
    frames, module = source.here()
    rec.emit(events.Selected(perf_counter_ns(), rec.text(op.aten), rec.stack(frames, module), rec.thread()))


def _numbered(op: Op, tensor: XLATensor, indices: Sequence[Any]) -> tuple[Any, list[Any]] | None:
    """``tensor`` with the dimensions that each mask covers merged, and ``indices`` with positions in place of masks.

    ``None`` where a mask does not have the shape of the dimensions it would cover.
    """
    shape: list[int] = []
    dim = 0
    for i in indices:
        width = i.ndim if _is_mask(i) else 1
        covered = tensor.shape[dim : dim + width]
        if _is_mask(i) and (not width or covered != i.shape):
            return None
        shape.append(math.prod(covered))
        dim += width
    shape += tensor.shape[dim:]
    on_device = [i for i in indices if _is_mask(i) and type(i) is XLATensor]
    counts = iter(dynamic_size_ops.sizes(op, "nonzero", *on_device) if on_device else ())
    numbers = [
        i
        if not _is_mask(i)
        else dynamic_size_ops.positions(op, i, next(counts))
        if type(i) is XLATensor
        else i.flatten().nonzero().squeeze(1)
        for i in indices
    ]
    return tensor if len(shape) == tensor.ndim else dynamic_size_ops.reshaped(tensor, *shape), numbers


def _warn_of_bytes(indices: Sequence[Any]) -> None:
    if any(i is not None and i.dtype is torch.uint8 for i in indices):
        at = stacks.user_frames(1)[0]
        warnings.warn_explicit(_DEPRECATED, UserWarning, at.file, at.line, registry=_warned)
