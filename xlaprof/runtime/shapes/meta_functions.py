"""Meta functions for operators that PyTorch has no meta kernel for: the same arguments, over meta tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from xlaprof.runtime.trace.ops import registering

Shape = Callable[..., Any]
SHAPES: dict[str, Shape] = {}
_of = registering(SHAPES)


@_of("aten.geqrf.default")
def _geqrf(self: torch.Tensor) -> Any:
    if self.ndim < 2:
        raise RuntimeError("torch.geqrf: input must have at least 2 dimensions.")
    return torch.empty_like(self), self.new_empty((*self.shape[:-2], min(self.shape[-2:])))


@_of("aten.histogram.bin_ct")
def _histogram(self: torch.Tensor, bins: int = 100, **_: Any) -> Any:
    return self.new_empty(bins), self.new_empty(bins + 1)


@_of("aten.histogram.bins_tensor")
def _histogram_over(self: torch.Tensor, bins: torch.Tensor, **_: Any) -> Any:
    return self.new_empty(bins.shape[0] - 1), self.new_empty(bins.shape)


@_of("aten._histogramdd_bin_edges.default")
def _edges(self: torch.Tensor, bins: Any, **_: Any) -> Any:
    return [self.new_empty(n + 1) for n in bins]


@_of("aten._histogramdd_from_bin_cts.default")
def _histogramdd(self: torch.Tensor, bins: Any, **_: Any) -> Any:
    return self.new_empty(bins)


@_of("aten._histogramdd_from_bin_tensors.default")
def _histogramdd_over(self: torch.Tensor, bins: Any, **_: Any) -> Any:
    return self.new_empty([edges.shape[0] - 1 for edges in bins])


@_of(
    "aten.fractional_max_pool3d_backward.default",
    "aten.multi_margin_loss_backward.default",
    "aten.multilabel_margin_loss_backward.default",
    "aten._ctc_loss_backward.Tensor",
)
def _like_second(grad: torch.Tensor, self: torch.Tensor, *_: Any) -> Any:
    return torch.empty_like(self)


@_of(
    "aten._standard_gamma_grad.default",
    "aten._dirichlet_grad.default",
    "aten._masked_softmax.default",
    "aten._masked_softmax_backward.default",
    "aten._logcumsumexp.default",
    "aten.binomial.default",
    "aten._sample_dirichlet.default",
)
def _like_first(self: torch.Tensor, *_: Any, **__: Any) -> Any:
    return torch.empty_like(self)


@_of(
    "aten.fake_quantize_per_tensor_affine_cachemask.default",
    "aten.fake_quantize_per_channel_affine_cachemask.default",
    "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",
)
def _quantized(self: torch.Tensor, *_: Any) -> Any:
    return torch.empty_like(self), torch.empty_like(self, dtype=torch.bool)


@_of("aten._ctc_loss.Tensor")
def _ctc_loss(log_probs: torch.Tensor, targets: torch.Tensor, *_: Any) -> Any:
    # Sized for the longest target possible, so the lengths need not be read.
    steps, samples, _classes = log_probs.shape
    return log_probs.new_empty(samples), log_probs.new_empty((samples, steps, 2 * targets.shape[-1] + 1))


@_of("aten._grouped_mm.default")
def _grouped_mm(
    self: torch.Tensor,
    mat2: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    # PyTorch's own requires bfloat16 and CUDA's strides; the CPU takes any dtype.
    if not {self.ndim, mat2.ndim} <= {2, 3}:
        raise RuntimeError(f"grouped_mm: matrices must be 2D or 3D, but have {self.ndim} and {mat2.ndim} dimensions")
    if (offs is None) != (self.ndim == mat2.ndim == 3):
        raise RuntimeError("grouped_mm: offs must be given if, and only if, one of the matrices is 2D")
    if self.shape[-1] != mat2.shape[-2]:
        raise RuntimeError(
            f"grouped_mm: contraction dimensions must match, but are {self.shape[-1]} and {mat2.shape[-2]}"
        )
    size = [self.shape[-2], mat2.shape[-1]]
    if self.ndim == mat2.ndim:
        size.insert(0, self.shape[0] if offs is None else offs.shape[0])
    return self.new_empty(size, dtype=out_dtype or self.dtype)


@_of("aten.multilabel_margin_loss_forward.default")
def _multilabel_margin_loss(self: torch.Tensor, target: torch.Tensor, reduction: int) -> Any:
    loss, among = torch.ops.aten.multilabel_margin_loss_forward.default(self, target, reduction)
    # for one sample the CPU returns a 0-dim loss, whatever the reduction
    return loss.new_empty(()) if target.ndim <= 1 else loss, among
