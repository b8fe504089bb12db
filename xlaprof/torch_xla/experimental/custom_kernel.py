"""``torch_xla.experimental.custom_kernel``: its kernels as ordinary operations, which XLA fuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from xlaprof.runtime.distributed.programs.operators import library as XLA_LIB
from xlaprof.runtime.functional.jax_functions import call_jax
from xlaprof.torch_xla._internal.jax_workarounds import jax_import_guard

__all__ = [
    "XLA_LIB", "FlashAttention", "flash_attention", "jax_import_guard", "make_kernel_from_pallas",
    "repeat_with_fixed_output_size",
]  # fmt: skip


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

    With ids, only positions of the same segment see one another; ``ab`` is added to the scores. The tensors keep
    their own sharding: ``partition_spec`` and ``mesh`` change no value.
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


class FlashAttention:
    """:func:`flash_attention` as ``FlashAttention.apply``."""

    #: no effect: XLA chooses its own
    DEFAULT_BLOCK_SIZES: ClassVar[dict[str, int]] = {}

    apply = staticmethod(flash_attention)


def make_kernel_from_pallas(kernel: Callable[..., Any], output_shape_dtype_fn: Any = None) -> Callable[..., Any]:
    """``kernel``, a jax function that calls ``pallas_call``, as a function of tensors without a gradient.

    Arguments that are no tensors are static. jax knows the shapes of the results: ``output_shape_dtype_fn``, and
    ``static_argnums`` and ``static_argnames`` of a call, have no effect.
    """

    def call(*args: Any, static_argnums: Any = None, static_argnames: Any = None, **kwargs: Any) -> Any:
        return call_jax(kernel, args, kwargs)

    return call


def _hide(bias: Tensor | None, hidden: Tensor, like: Tensor) -> Tensor:
    if bias is None:
        bias = torch.zeros((), dtype=like.dtype, device=like.device)
    return torch.where(hidden, float("-inf"), bias)


def repeat_with_fixed_output_size(input: Tensor, repeats: Tensor, total_repeat_length: int) -> Tensor:
    """``torch.repeat_interleave(input, repeats)`` cut, or padded with the last of ``input``, to a fixed length.

    Both are one-dimensional. The length does not depend on values, so nothing is read.
    """
    if input.dim() != 1 or repeats.dim() != 1:
        raise ValueError(f"input {list(input.shape)} and repeats {list(repeats.shape)} have to be one-dimensional")
    ends = torch.cumsum(repeats, dim=0)
    place = torch.arange(total_repeat_length, device=input.device)
    return input[torch.searchsorted(ends, place, right=True).clamp(max=input.size(0) - 1)]
