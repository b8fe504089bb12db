"""Results whose shape depends on values: the number that decides it is computed on the device and read.

``nonzero``, selection by a mask, ``unique``, ``repeat_interleave``, ``bincount``: first the size (how many elements are
true or differ, the sum of the repeats) is computed and read: one execution, and a transfer of one number; recorded
operations stay pending. Then the operation is recorded like any other, with the size among its arguments. The size is
part of the graph's identity: another size is another graph, and is reported as the reason for its compilation.

The size of an unchanged tensor is read once between two barriers, however often it selects. Nothing is read where the
size follows from shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from inspect import signature
from typing import Any

import torch
from torch.utils._pytree import tree_map

from xlaprof.runtime.lowering import selection
from xlaprof.runtime.shapes.rehearse import rehearse
from xlaprof.runtime.tape.grow import Pseudo
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.ops import Op
from xlaprof.runtime.trace.storage import sig
from xlaprof.runtime.trace.tensor import XLATensor, handle
from xlaprof.runtime.trace.trie import Ref, Spec
from xlaprof.runtime.transfer import host

from . import fallback, handlers
from .handlers import special
from .types import Args, Kwargs

aten = torch.ops.aten

# -- two steps: read a size, record a result of that size ---------------------------------------------


def _unless_negative(tensor: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    return torch.where(tensor.min() < 0, -1, size)


#: kind of size -> computes it, a 0-dim integer; -1 where the tensor has a negative number
_SIZES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "nonzero": torch.count_nonzero,
    "sum": lambda t: _unless_negative(t, t.sum()),
    "range": lambda t: _unless_negative(t, aten._to_copy.default(t.max(), dtype=torch.int64) + 1),
}


def sizes(op: Op, kind: str, *tensors: XLATensor) -> list[int]:
    """The size that each of ``tensors``, all on one device, decides. One transfer reads those not known yet."""
    tape = tensors[0]._storage.tape
    found = [known(kind, t) if t.numel() else 0 for t in tensors]
    missing = {_slot(tape, t): t for t, size in zip(tensors, found, strict=True) if size is None}
    if missing:
        computed = [_SIZES[kind](t) for t in missing.values()]
        values = host.read([size._storage for size in computed], op.aten, keep_pending=True)  # type: ignore[attr-defined]
        for tensor, value in zip(missing.values(), values, strict=True):
            tape.sizes[kind, _slot(tape, tensor)] = int(value)  # no recorded value ever changes: its slot stands for it
    return [tape.sizes[kind, _slot(tape, t)] if size is None else size for t, size in zip(tensors, found, strict=True)]


def known(kind: str, tensor: XLATensor) -> int | None:
    """The size that ``tensor`` decides, if it has been read since the last barrier."""
    tape: Tape = tensor._storage.tape
    return tape.sizes.get((kind, _slot(tape, tensor)))


def _slot(tape: Tape, tensor: XLATensor) -> int:
    with tape.lock:
        return tape.slot_of(tensor._storage)


class Sized(Pseudo):
    """Stands for an operator whose result's size was read: the size is its last argument."""

    #: name of the argument that was read from the device
    read = "size"

    def __init__(self, op: Op, lowering: Callable[..., Any]) -> None:
        super().__init__(f"xlaprof.{lowering.__name__}", lowering)
        self.func: Any = op.func
        self.aten = op.aten
        self.names = tuple(signature(lowering).parameters)[1:]

    def __call__(self, *args: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> XLATensor:
        """Record it over ``args`` (tensors, ``None``, the size); the result is of ``dtype`` and ``shape``."""
        tape = args[0]._storage.tape
        spec = Spec(sig(shape, dtype))
        with tape.lock:
            template = tuple(Ref(tape.slot_of(a._storage)) if type(a) is XLATensor else a for a in args)
            key = (self, *(a.slot if type(a) is Ref else a for a in template))
            storage = tape.output(tape.pseudo(self, key, template, {}, spec), spec.sig)
        return handle(storage)


#: the one :class:`Sized` that computes (part of) an operator by a lowering of :mod:`.lowering.selection`
sized = cache(Sized)


def positions(op: Op, mask: XLATensor, size: int) -> XLATensor:
    """i64[size]: where ``mask``, flattened, is true."""
    return sized(op, selection.positions)(mask, size, dtype=torch.int64, shape=(size,))


def reshaped(tensor: Any, *shape: int) -> Any:
    """The elements of ``tensor`` in order; no view of it."""
    return aten._reshape_copy.default(tensor, list(shape))


# -- operators ----------------------------------------------------------------------------------------


def _operator(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register ``handle(op, *args, **kwargs)`` for functional overloads; for arguments it does not
    cover it returns ``NotImplemented``: then the CPU raises its error, or computes the result.
    """

    def register(compute: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            packet, overload = name.split(".")[1:]
            special(name)(_handler(Op(getattr(getattr(aten, packet), overload)), compute))
        return compute

    return register


def _handler(op: Op, compute: Callable[..., Any]) -> Callable[..., Any]:
    def record(args: Args, kwargs: Kwargs) -> Any:
        args, kwargs = host.adopt(host.tape_of(args, kwargs), op, args, kwargs)
        if not args[0].numel():
            return _of_empty(op, args, kwargs)
        result = compute(op, *args, **kwargs)
        return on_cpu(op, args, kwargs) if result is NotImplemented else result

    return record


def _of_empty(op: Op, args: Args, kwargs: Kwargs) -> Any:
    """The result for a tensor without elements: it follows from shapes, which the CPU knows."""

    def on_host(value: Any) -> Any:
        return torch.zeros(value.shape, dtype=value.dtype) if isinstance(value, torch.Tensor) else value

    device = args[0].device
    cpu_args, cpu_kwargs = tree_map(on_host, (args, kwargs))
    return tree_map(lambda t: torch.zeros_like(t, device=device), op.func(*cpu_args, **cpu_kwargs))


def on_cpu(op: Op, args: Args, kwargs: Kwargs) -> Any:
    """For arguments not covered here: the CPU raises its error, or computes the result."""
    rehearse(op, args, kwargs)  # raises, where the arguments are to blame
    return fallback.on_cpu(op, args, kwargs)


@_operator("aten.nonzero.default")
def nonzero(op: Op, self: XLATensor) -> Any:
    (size,) = sizes(op, "nonzero", self)
    return sized(op, selection.coordinates)(self, size, dtype=torch.int64, shape=(size, self.ndim))


@_operator("aten.masked_select.default")
def masked_select(op: Op, self: XLATensor, mask: XLATensor) -> Any:
    if mask.dtype is not torch.bool:
        return NotImplemented
    try:
        shape = torch.broadcast_shapes(self.shape, mask.shape)
    except RuntimeError:
        return NotImplemented
    (size,) = sizes(op, "nonzero", mask)
    size *= math.prod(shape) // max(mask.numel(), 1)
    chosen = positions(op, _expanded(mask, shape), size)
    return reshaped(_expanded(self, shape), -1).index_select(0, chosen)


def _expanded(tensor: Any, shape: torch.Size) -> Any:
    return tensor if tensor.shape == shape else tensor.expand(shape)


@_operator("aten.repeat_interleave.Tensor")
def repeat_interleave(op: Op, repeats: XLATensor, *, output_size: int | None = None) -> Any:
    if repeats.ndim != 1 or repeats.dtype not in (torch.int32, torch.int64):
        return NotImplemented
    if output_size is not None:
        return _repeat_interleave((repeats,), {"output_size": output_size})
    (size,) = sizes(op, "sum", repeats)
    if size < 0:
        raise RuntimeError("repeats can not be negative")
    return sized(op, selection.repeated)(repeats, size, dtype=repeats.dtype, shape=(size,))


_repeat_interleave = handlers.general(Op(aten.repeat_interleave.Tensor))

_COUNTABLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@_operator("aten.bincount.default")
def bincount(op: Op, self: XLATensor, weights: XLATensor | None = None, minlength: int = 0) -> Any:
    if self.ndim != 1 or self.dtype not in _COUNTABLE or minlength < 0:
        return NotImplemented
    if weights is not None and (weights.shape != self.shape or weights.is_complex()):
        return NotImplemented
    (size,) = sizes(op, "range", self)
    if size < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    size = max(size, minlength)
    dtype = torch.int64 if weights is None else torch.float32 if weights.dtype is torch.float32 else torch.float64
    return sized(op, selection.bincount)(self, weights, size, dtype=dtype, shape=(size,))


# -- distinct values ----------------------------------------------------------------------------------


@_operator("aten._unique2.default")
def unique2(
    op: Op, self: XLATensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    if self.is_complex():
        return NotImplemented
    values, order = reshaped(self, -1).sort(stable=True)
    values, group, counts = _runs(op, values)
    inverse = reshaped(torch.zeros_like(order).scatter(0, order, group), *self.shape)
    return _requested(self, values, inverse if return_inverse else None, counts if return_counts else None)


@_operator("aten._unique.default")
def unique(op: Op, self: XLATensor, sorted: bool = True, return_inverse: bool = False) -> Any:
    result = unique2(op, self, sorted, return_inverse)
    return result if result is NotImplemented else result[:2]


@_operator("aten.unique_consecutive.default")
def unique_consecutive(
    op: Op, self: XLATensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    if self.is_complex():
        return NotImplemented
    if dim is not None:
        return unique_dim_consecutive(op, self, dim)
    values, group, counts = _runs(op, reshaped(self, -1))
    inverse = reshaped(group, *self.shape) if return_inverse else None
    return _requested(self, values, inverse, counts if return_counts else None)


@_operator("aten.unique_dim.default")
def unique_dim(
    op: Op,
    self: XLATensor,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    consecutive: bool = False,
) -> Any:
    # Inverse and counts are returned whether requested or not, as on the CPU.
    if self.is_complex() or not -self.ndim <= dim < self.ndim:
        return NotImplemented
    length = self.shape[dim]
    dim %= self.ndim
    rest = [d for d in range(self.ndim) if d != dim]
    rows = reshaped(self.permute(dim, *rest), length, -1)
    if consecutive:
        values, inverse, counts = _runs(op, rows)
    else:
        order = sized(op, selection.row_order)(rows, dtype=torch.int64, shape=(length,))
        values, group, counts = _runs(op, rows.index_select(0, order))
        inverse = torch.zeros_like(order).scatter(0, order, group)
    back = [rest.index(d) + 1 if d != dim else 0 for d in range(self.ndim)]
    return reshaped(values, -1, *(self.shape[d] for d in rest)).permute(back).clone(), inverse, counts


@_operator("aten.unique_dim_consecutive.default")
def unique_dim_consecutive(
    op: Op, self: XLATensor, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    return unique_dim(op, self, dim, consecutive=True)


def _runs(op: Op, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Runs of equal elements, or rows: each run's first, the run of each element, each run's length.

    NaN differs from NaN.
    """
    new = rows[1:] != rows[:-1]
    begins = aten.constant_pad_nd.default(new.any(1) if new.ndim > 1 else new, (1, 0), True)
    (size,) = sizes(op, "nonzero", begins)
    starts = positions(op, begins, size)
    counts = aten.constant_pad_nd.default(starts[1:], (0, 1), len(rows)) - starts
    return rows.index_select(0, starts), begins.cumsum(0) - 1, counts


def _requested(self: XLATensor, values: Any, inverse: Any, counts: Any) -> tuple[Any, ...]:
    """Results that were not requested are empty, as on the CPU."""
    empty = [torch.empty(0, dtype=torch.int64, device=self.device) if t is None else t for t in (inverse, counts)]
    return values, *empty
