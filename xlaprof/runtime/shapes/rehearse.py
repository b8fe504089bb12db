"""PyTorch's own errors: the call is made on the CPU, with stand-ins of the same shapes.

Meta kernels and decompositions check less than kernels do, or word their errors differently. So where a call is
refused, or looks wrong (an ``out=`` of another dtype, memory written and read at once), the CPU kernel is called with
tensors of ones and zeros that have the same shapes, strides and dtypes, and share memory like the call's own. The user
gets the error that it raises; a call that it accepts is not refused.

Calls that nothing looks wrong with are made so, too (:func:`refuse`), once for each signature. Of a large one the sizes
are first cut down to a few: whether it takes the dtypes does not depend on them.

Nothing is read from the device, and the user's tensors are not touched.
"""

from __future__ import annotations

import math
import re
import sys
import warnings
from collections.abc import Hashable
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from xlaprof.runtime.trace import errors
from xlaprof.runtime.trace.ops import Op
from xlaprof.runtime.trace.storage import Storage, base_of
from xlaprof.runtime.trace.tensor import XLATensor

#: bytes of stand-ins at most; larger calls are not rehearsed
LIMIT = 1 << 28
#: of a call that nothing looks wrong with, its results included; a larger one is cut down
_EACH = 1 << 18
#: sizes and numbers of a call that is cut down, at most
_SMALL = 8
#: operators and types of arguments (:func:`_type`) that the CPU takes
_taken: set[Hashable] = set()
#: signatures of calls that the CPU takes
_accepted: set[Hashable] = set()
_ACCEPTED_LIMIT = 10_000
#: words of refusals that are about dtypes
_OF_DTYPES = r"(?i)\b(implemented for|d?types?|can't be cast|complex|bool(ean)?|float(ing)?|int|integ\w+|long)\b"
#: what XLA computes and PyTorch's CPU does not (labels in floats are taken as XLA devices take them), and what only
#: values tell, in words that do not show them
_NOT_HERE = re.compile(
    r"not implemented for '(BFloat16|Half|Float8\w+)'|expected target dtype to be Long or Byte"
    r"|rows of lengths along axis to sum|allocated size does not match"
)
#: gradients that take statistics which the forward pass saved: in the dtype that it computes in, where the CPU saves
#: half precision's in half precision and takes no others
_OF_SAVED = frozenset(
    f"aten.{name}_backward.default" for name in ("native_layer_norm", "native_group_norm", "native_batch_norm")
)
_NOTHING = re.compile("(?!)")


def refuse(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], made: int) -> None:
    """Raise what the CPU raises of a call that it makes in no time, but for what it alone refuses.

    ``made`` is the size of the results, in bytes. Of a large call, cut down, only a refusal of dtypes is raised; it is
    made once for each operator and types of arguments. What other lengths, counts and masks would not raise comes from
    the stand-ins' values: no refusal.
    """
    if op.name in _OF_SAVED:
        return
    leaves = tree_leaves((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    types = op.name, tuple(map(_type, leaves))
    large = made + sum(max(x.numel(), _end(x)) * x.itemsize for x in tensors) > _EACH
    if large and (types in _taken or not tensors):
        return
    ask = partial(rehearse, op, args, kwargs, but=_NOT_HERE, most=_SMALL if large else sys.maxsize)
    try:
        accepted = ask(about=_OF_DTYPES if large else "")
    except Exception as error:
        numbers = all(x.dtype.is_floating_point or x.dtype.is_complex for x in tensors)
        if numbers or isinstance(error, NotImplementedError):
            if large and rehearse(op, args, kwargs, but=_NOT_HERE):  # else in its own words: kernels differ by sizes
                return
            raise
        ask(about=re.escape(str(error)), integers=1)
        return
    if accepted and all(x.numel() for x in tensors):  # else no kernel need have been called
        _taken.add(types)


def _type(leaf: Any) -> Hashable:
    """What decides, of one argument, which dtypes an operator takes."""
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, leaf.ndim > 0  # a number promotes less
    return (type(leaf),) if type(leaf) in (int, float, complex, torch.Generator) else leaf


def signature(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
    """Equal for calls that the CPU takes or refuses alike."""
    memory: dict[int, int] = {}

    def of(value: Any) -> Hashable:
        if isinstance(value, torch.Tensor):
            base = id(base_of(value._storage)) if type(value) is XLATensor else id(value)
            place = value.storage_offset(), memory.setdefault(base, len(memory))
            return value.dtype, value.shape, value.stride(), place
        return tuple(map(of, value)) if isinstance(value, (list, tuple)) else (type(value), value)

    return op, of(args), *kwargs, of([*kwargs.values()])


def is_accepted(call: Hashable) -> bool:
    """Was this :func:`signature` accepted?"""
    return call in _accepted


def accept(call: Hashable) -> None:
    """Remember this :func:`signature`: it need not be rehearsed again."""
    if len(_accepted) >= _ACCEPTED_LIMIT:
        _accepted.clear()
    _accepted.add(call)


def rehearse(
    op: Op,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    about: str = "",
    but: re.Pattern[str] = _NOTHING,
    integers: int = 0,
    most: int = sys.maxsize,
) -> bool:
    """Raise what ``op`` raises on the CPU. ``True`` if it accepts the call, ``False`` if that is not known.

    With ``about``, a pattern, only errors whose message has it, or that a dtype has no kernel, are raised; an error
    whose message has ``but`` never is. A call with stand-ins of more than :data:`LIMIT` bytes is not tried. In those of
    integers and bools all numbers are ``integers``. Sizes and whole numbers above ``most`` are cut down to it.
    """
    standins = _StandIns(integers if {"pivots", "LU_pivots"}.isdisjoint(op.names) else 1, most)
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


def _end(x: torch.Tensor) -> int:
    """Elements of memory up to its last one."""
    reach = sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
    return int(x.storage_offset() + reach + 1) if x.numel() else 0


class _TooLarge(Exception):
    pass


class _StandIns:
    """Host tensors in place of the tensors of one call.

    Ones where a zero is special (0-dim probabilities, divisors); ``integers`` may be indices, or pivots, which kernels
    take for rows, counted from 1.
    """

    def __init__(self, integers: int, most: int = sys.maxsize) -> None:
        self._integers = integers
        self._most = most
        self._bytes = 0
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._tensors: dict[int, torch.Tensor] = {}

    def of(self, value: Any) -> Any:
        """The stand-in for an argument that is not a container."""
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if isinstance(value, torch.Generator):
            return None
        if type(value) is int:
            return min(value, self._most)
        if not isinstance(value, torch.Tensor):
            return value
        found = self._tensors.get(id(value))
        if found is None:
            found = self._tensors[id(value)] = self._tensor(value)
        return found

    def _tensor(self, value: torch.Tensor) -> torch.Tensor:
        if self._most < sys.maxsize:
            return self._cut_down(value)
        if type(value) is not XLATensor:
            size = value.numel() * value.element_size()
            self._book(size)
            return torch.full_like(value, 1 if value.dtype.is_floating_point else self._integers)
        offset, stride = value.storage_offset(), value.stride()
        storage = self._storage(value._storage, _end(value) * value.itemsize, value.dtype)
        return torch.empty(0, dtype=value.dtype).set_(storage, offset, value.shape, stride)

    def _cut_down(self, value: torch.Tensor) -> torch.Tensor:
        """With memory of its own, in which its dimensions have the order of ``value``'s."""
        order = sorted(range(value.ndim), key=value.stride, reverse=True)
        sizes = [min(value.shape[dim], self._most) for dim in order]
        self._book(math.prod(sizes) * value.itemsize)
        numbers = torch.full(sizes, 1 if value.dtype.is_floating_point else self._integers, dtype=value.dtype)
        return numbers.permute([order.index(dim) for dim in range(value.ndim)])

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
        if self._bytes > LIMIT:
            raise _TooLarge
