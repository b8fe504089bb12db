"""``torch_xla.experimental.custom_kernel``: what its kernels compute, left to XLA to fuse."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["flash_attention"]


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    q_segment_ids: Tensor | None = None,
    kv_segment_ids: Tensor | None = None,
    sm_scale: float = 1.0,
    *,
    ab: Tensor | None = None,
    partition_spec: Any = None,
    mesh: Any = None,
) -> Tensor:
    """Attention over ``[batch, heads, length, size]``, not scaled unless by ``sm_scale``.

    With ids, only positions of the same segment see one another; ``ab`` is added to the scores. How the tensors lie
    over devices follows from their own sharding: ``partition_spec`` and ``mesh`` change no value.
    """
    bias = ab
    if q_segment_ids is not None and kv_segment_ids is not None:
        apart = q_segment_ids[:, None, :, None] != kv_segment_ids[:, None, None, :]
        bias = _hide(bias, apart, q)
    if causal:
        rows, columns = q.shape[-2], k.shape[-2]
        later = torch.ones(rows, columns, dtype=torch.bool, device=q.device).triu(1)
        bias = _hide(bias, later, q)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=sm_scale)


def _hide(bias: Tensor | None, hidden: Tensor, like: Tensor) -> Tensor:
    if bias is None:
        bias = torch.zeros((), dtype=like.dtype, device=like.device)
    return torch.where(hidden, float("-inf"), bias)
