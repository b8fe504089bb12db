"""Shapes of results, from PyTorch's own meta kernels: once per edge of the trie.

A call that they refuse is rehearsed on the CPU, so that users see the message they know. They overlook mistakes: a
small call is rehearsed in any case, and :mod:`.checks` finds those of larger ones that look wrong.
:mod:`.meta_functions` has the operators without a meta kernel.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch

from xlaprof.runtime.lowering.registry import JAX_DTYPE
from xlaprof.runtime.trace.ops import Op, is_view
from xlaprof.runtime.trace.storage import sig
from xlaprof.runtime.trace.trie import Spec

from .checks import CHECKS
from .dtype_checks import loses_imaginary_part
from .meta_functions import SHAPES
from .rehearse import refuse, refuse_overlap, rehearse


class NoMeta(Exception):
    """The operator's result shape depends on its values."""


#: results by signature of the call: a repeated layer is inferred once
_known: dict[Hashable, list[Spec | None]] = {}
_KNOWN_LIMIT = 100_000


def infer(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], alike: Hashable) -> list[Spec | None]:
    """The spec of each output of ``op`` over these tensors (of any device); ``None`` for one that is left out.

    ``alike`` is equal for calls with the same result: operator, shapes, dtypes, strides and numbers.
    Raises what PyTorch raises on the CPU for bad arguments.
    """
    check = CHECKS.get(op.name)
    if check is not None and check(*args, **kwargs):
        rehearse(op, args, kwargs)
    if op.writes:
        refuse_overlap(op, args, kwargs)
        if loses_imaginary_part(args):
            rehearse(op, args, kwargs)
        if op.writes == (0,) and any(isinstance(a, torch.Tensor) and a.dtype is not args[0].dtype for a in args[1:]):
            rehearse(op, args, kwargs, about="can't be cast")
    found = _known.get(alike)
    if found is None:
        if len(_known) >= _KNOWN_LIMIT:
            _known.clear()
        _refuse_growth(op, args, kwargs)
        found = _run_meta(op, args, kwargs)
        if not is_view(op.func):  # the kernel of a view is that of its meta tensor
            refuse(op, args, kwargs, sum(spec.sig.nbytes for spec in found if spec is not None))
        _known[alike] = found
    return found


def _refuse_growth(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise what the CPU raises where a tensor would be overwritten element by element with one of a larger shape."""
    if op.twin is None or torch.Tag.pointwise not in op.twin.tags or not isinstance(args[0], torch.Tensor):
        return
    for other in args[1:]:
        if isinstance(other, torch.Tensor) and not _fits(other.shape, args[0].shape):
            rehearse(op, args, kwargs)
            return


def _fits(shape: torch.Size, into: torch.Size) -> bool:
    """Does it broadcast to exactly that?"""
    return len(shape) <= len(into) and all(n in (1, m) for n, m in zip(shape[::-1], into[::-1], strict=False))


def _run_meta(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Spec | None]:
    metas: dict[int, torch.Tensor] = {}
    named = {
        name: torch.device("meta") if name == "device" else None if name == "generator" else _meta(value, metas)
        for name, value in kwargs.items()
    }
    shape = SHAPES.get(op.name, op.func)
    try:
        result = shape(*[_meta(a, metas) for a in args], **named)
    except NotImplementedError as error:
        raise NoMeta(str(error)) from error
    except Exception as error:
        if torch.Tag.dynamic_output_shape in op.func.tags or rehearse(op, args, kwargs):
            raise NoMeta(str(error)) from error
        raise
    if isinstance(result, torch.Tensor):
        return [_spec(result, is_view(op.func))]
    if isinstance(result, (tuple, list)) and all(r is None or isinstance(r, torch.Tensor) for r in result):
        return [None if r is None else _spec(r, False) for r in result]
    raise NoMeta(f"{op.name} returns {type(result).__name__}, which no device value stands for")


def _spec(t: torch.Tensor, view: bool) -> Spec:
    if t.dtype not in JAX_DTYPE or t.layout is not torch.strided:
        raise NoMeta(f"{t.dtype} {t.layout} has no device form")
    signature = sig(tuple(t.shape), t.dtype)
    return Spec(signature, tuple(t.stride()), int(t.storage_offset())) if view else Spec(signature)


def _meta(value: Any, metas: dict[int, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        found = metas.get(id(value))
        if found is None:
            found = metas[id(value)] = _empty_like(value)
        return found
    if isinstance(value, (list, tuple)):
        return [_meta(v, metas) for v in value]
    if isinstance(value, torch.Generator):
        return None
    return torch.device("meta") if isinstance(value, torch.device) else value


def _empty_like(value: torch.Tensor) -> torch.Tensor:
    offset = value.storage_offset()
    if not offset:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    last = offset + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True) if n > 0)
    storage = torch.empty(last + 1, dtype=value.dtype, device="meta")
    return storage.as_strided(value.shape, value.stride(), offset)
