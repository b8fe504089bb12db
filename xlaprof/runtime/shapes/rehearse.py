"""PyTorch's own errors: the call is made on the CPU, with stand-ins of the same shapes.

Meta kernels and decompositions check less than kernels do, or word their errors differently. So where a call is
refused, or looks wrong (an ``out=`` of another dtype, memory written and read at once), the CPU kernel is called with
tensors of ones and zeros that have the same shapes, strides and dtypes, and share memory like the call's own. The user
gets the error that it raises; a call that it accepts is not refused.

Nothing is read from the device, and the user's tensors are not touched.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from xlaprof.runtime.trace import errors
from xlaprof.runtime.trace.ops import Op
from xlaprof.runtime.trace.storage import Storage, base_of
from xlaprof.runtime.trace.tensor import XLATensor

#: bytes of stand-ins at most; larger calls are not rehearsed
LIMIT = 1 << 28
#: of calls that nothing looks wrong with: of the first with an operator and dtypes, and of each
_FIRST, _EACH = 1 << 20, 1 << 16
#: operators and dtypes of calls that the CPU accepts
_accepted: set[tuple[str, tuple[torch.dtype, ...]]] = set()
#: what XLA computes and PyTorch's CPU does not (labels in floats are taken as XLA devices take them), and what only
#: values tell, in words that do not show them
_NOT_HERE = re.compile(
    r"not implemented for '(BFloat16|Half|Float8\w+)'|expected target dtype to be Long or Byte"
    r"|rows of lengths along axis to sum|allocated size does not match"
)
_NOTHING = re.compile("(?!)")


def refuse(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], made: int) -> None:
    """Raise what the CPU raises of a call that it makes in no time, but for what it alone refuses.

    ``made`` is the size of the results, in bytes. What other lengths, counts and masks would not raise comes from the
    stand-ins' values: no refusal.
    """
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    of = op.name, tuple(tensor.dtype for tensor in tensors)
    room = (_EACH if of in _accepted else _FIRST) - made
    try:
        accepted = room >= 0 and rehearse(op, args, kwargs, but=_NOT_HERE, limit=room)
    except Exception as error:
        numbers = all(dtype.is_floating_point or dtype.is_complex for dtype in of[1])
        if numbers or isinstance(error, NotImplementedError):
            raise
        rehearse(op, args, kwargs, about=re.escape(str(error)), integers=1)
        return
    if accepted and all(tensor.numel() for tensor in tensors):  # else no kernel need have been called
        _accepted.add(of)


def rehearse(
    op: Op,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    about: str = "",
    but: re.Pattern[str] = _NOTHING,
    limit: int = LIMIT,
    integers: int = 0,
) -> bool:
    """Raise what ``op`` raises on the CPU. ``True`` if it accepts the call, ``False`` if that is not known.

    With ``about``, a pattern, only errors whose message has it, or that a dtype has no kernel, are raised; an error
    whose message has ``but`` never is. A call with stand-ins of more than ``limit`` bytes is not tried. In those of
    integers and bools all numbers are ``integers``.
    """
    standins = _StandIns(limit, integers if {"pivots", "LU_pivots"}.isdisjoint(op.names) else 1)
    try:
        here, named = tree_map(standins.of, (args, kwargs))
    except _TooLarge:
        return False
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            op.func(*here, **named)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # due to the stand-ins' values
            return True
        except Exception as error:
            told = str(error)
            if "ZeroDivisionError" in told:  # likewise
                return True
            if isinstance(error, NotImplementedError):  # for a dtype, or for all tensors
                known = "Could not run" not in told
            else:
                known = re.search(about, told) is not None
            if known and not but.search(told):
                raise rehearsed(error, op) from None
            return False
    return True


errors.rehearse = rehearse


def rehearsed(error: Exception, op: Op) -> Exception:
    """``error``, known to be what the CPU raises for ``op``."""
    error._xla_rehearsed = op.name  # type: ignore[attr-defined]
    return error


def refuse_overlap(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise what the CPU raises for an operation that writes to memory it also reads, or to one place twice.

    On the device the result would be defined, because values are never overwritten while they are read; but it would
    differ from PyTorch's.
    """
    written = [args[i] if i < len(args) else kwargs.get(op.names[i]) for i in op.writes]
    read = [value for value in tree_leaves((args, kwargs)) if type(value) is XLATensor]
    if any(_overlaps(target, read) for target in tree_leaves(written) if type(target) is XLATensor):
        rehearse(op, args, kwargs, about="unsupported operation")


def _overlaps(target: XLATensor, others: list[XLATensor]) -> bool:
    """May ``target`` overlap itself, or share memory with another tensor of the call?"""
    if any(stride == 0 and size > 1 for stride, size in zip(target.stride(), target.shape, strict=True)):
        return True
    base = base_of(target._storage)
    return sum(base_of(other._storage) is base for other in others) > 1  # the target is one of them


class _TooLarge(Exception):
    pass


class _StandIns:
    """Host tensors in place of the tensors of one call.

    Ones where a zero is special (0-dim probabilities, divisors); ``integers`` may be indices, or pivots, which kernels
    take for rows, counted from 1.
    """

    def __init__(self, limit: int, integers: int) -> None:
        self._limit = limit
        self._integers = integers
        self._bytes = 0
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._tensors: dict[int, torch.Tensor] = {}

    def of(self, value: Any) -> Any:
        """The stand-in for an argument that is not a container."""
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if isinstance(value, torch.Generator):
            return None
        if not isinstance(value, torch.Tensor):
            return value
        found = self._tensors.get(id(value))
        if found is None:
            found = self._tensors[id(value)] = self._tensor(value)
        return found

    def _tensor(self, value: torch.Tensor) -> torch.Tensor:
        if type(value) is not XLATensor:
            size = value.numel() * value.element_size()
            self._book(size)
            return torch.full_like(value, 1 if value.dtype.is_floating_point else self._integers)
        offset, stride = value.storage_offset(), value.stride()
        last = offset + sum((n - 1) * s for n, s in zip(value.shape, stride, strict=True)) if value.numel() else -1
        storage = self._storage(value._storage, int(last + 1) * value.element_size(), value.dtype)
        return torch.empty(0, dtype=value.dtype).set_(storage, offset, value.shape, stride)

    def _storage(self, storage: Storage, size: int, dtype: torch.dtype) -> torch.UntypedStorage:
        base = base_of(storage)
        found = self._storages.get(id(base))
        if found is None or found.nbytes() < size:
            self._book(size)
            if found is None:
                found = self._storages[id(base)] = torch.UntypedStorage(0)
            begin, count = found.nbytes() // dtype.itemsize, max(size, 0) // dtype.itemsize
            found.resize_(size)
            new = torch.empty(0, dtype=dtype).set_(found, begin, (count - begin,), (1,))
            new.fill_(1 if dtype.is_floating_point else self._integers)
        return found

    def _book(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._limit:
            raise _TooLarge
