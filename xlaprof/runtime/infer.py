"""Shapes of results: PyTorch's own meta kernels, asked once per edge of the trie.

They raise what PyTorch raises for bad shapes and dtypes, so a user sees the message they know.
"""

from __future__ import annotations

from typing import Any

import torch

from .cells import sig
from .lowering.registry import JAX_DTYPE
from .ops import Op, is_view
from .trie import Spec


class NoMeta(Exception):
    """The operator's result shape cannot be told without its values."""


def infer(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Spec | None]:
    """What each output of ``op`` over these tensors (of any device) will be; ``None`` for one that is left out."""
    metas: dict[int, torch.Tensor] = {}
    named = {
        name: torch.device("meta") if name == "device" else None if name == "generator" else _meta(value, metas)
        for name, value in kwargs.items()
    }
    try:
        result = op.func(*[_meta(a, metas) for a in args], **named)
    except NotImplementedError as error:
        raise NoMeta(str(error)) from error
    except RuntimeError as error:
        if torch.Tag.dynamic_output_shape in op.func.tags:
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
    return torch.device("meta") if isinstance(value, torch.device) else value


def _empty_like(value: torch.Tensor) -> torch.Tensor:
    offset = value.storage_offset()
    if not offset:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    last = offset + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True) if n > 0)
    storage = torch.empty(last + 1, dtype=value.dtype, device="meta")
    return storage.as_strided(value.shape, value.stride(), offset)
