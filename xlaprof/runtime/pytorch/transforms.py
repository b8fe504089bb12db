"""Operators of ``torch.func`` and forward-mode AD that concern a tensor's storage.

A tangent has the memory layout of its primal: PyTorch compares storages, and where they differ copies the tangent into
zeros laid out as the primal is. Here storage is contiguous, so layouts differ only in their element counts.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx.experimental import proxy_tensor

from xlaprof.runtime.dispatch.handlers import special
from xlaprof.runtime.trace.storage import View
from xlaprof.runtime.trace.tensor import XLATensor

aten = torch.ops.aten


def _storage_numel(tensor: torch.Tensor) -> int:
    """Number of elements of ``tensor``'s storage, in the tensor's dtype."""
    if type(tensor) is not XLATensor:
        return tensor.untyped_storage().nbytes() // tensor.element_size()
    storage = tensor._storage
    base = storage.base.sig if isinstance(storage, View) else storage.sig
    return base.nbytes // tensor.dtype.itemsize


@special("aten._has_same_storage_numel.default")
def has_same_storage_numel(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Have both tensors' storages the same number of elements?"""
    return _storage_numel(args[0]) == _storage_numel(args[1])


@special("aten._new_zeros_with_same_feature_meta.default")
def new_zeros_with_same_feature_meta(
    args: tuple[Any, ...], kwargs: dict[str, Any], self_num_batch_dims: int = 0
) -> torch.Tensor:
    """Zeros for the tangent ``self`` of the primal ``other``: its first dimensions are batches, the rest is laid out
    as ``other`` is.
    """
    tangent, primal, *rest = args
    batch_dims = rest[0] if rest else kwargs.get("self_num_batch_dims", self_num_batch_dims)
    numel, batch = _storage_numel(primal), tuple(tangent.shape[:batch_dims])
    options = {"dtype": primal.dtype, "device": primal.device}
    if numel == primal.numel() and primal.is_contiguous():
        return aten.zeros.default([*batch, *primal.shape], **options)  # type: ignore[no-any-return]
    strides = [numel * math.prod(batch[i + 1 :]) for i in range(batch_dims)]
    zeros = aten.zeros.default([math.prod(batch) * numel], **options)
    size = [*batch, *primal.shape]
    return aten.as_strided.default(zeros, size, [*strides, *primal.stride()], primal.storage_offset())  # type: ignore[no-any-return]


def install() -> None:
    """Let ``make_fx`` (which ``torch.func.linearize`` traces with) record operations on our tensors.

    It records operations on tensors of the types that it lists. With other types it would trace inside our dispatch
    instead, and bake our results in as constants.
    """
    if XLATensor not in proxy_tensor.HANDLED_TYPES:
        proxy_tensor.HANDLED_TYPES = (*proxy_tensor.HANDLED_TYPES, XLATensor)  # type: ignore[assignment]
