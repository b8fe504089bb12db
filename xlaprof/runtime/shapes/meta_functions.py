"""Meta functions for operators that PyTorch has none for, or not the CPU's: the same arguments, over meta tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from xlaprof.runtime.lowering.registry import overloads


def _geqrf(self: torch.Tensor) -> Any:
    if self.ndim < 2:
        raise RuntimeError("torch.geqrf: input must have at least 2 dimensions.")
    return torch.empty_like(self), self.new_empty((*self.shape[:-2], min(self.shape[-2:])))


def _quantized(self: torch.Tensor, *_: Any) -> Any:
    return torch.empty_like(self), torch.empty_like(self, dtype=torch.bool)


def _ctc_loss(log_probs: torch.Tensor, targets: torch.Tensor, *_: Any) -> Any:
    # Sized for the longest target possible, so the lengths need not be read.
    steps, samples, _classes = log_probs.shape
    return log_probs.new_empty(samples), log_probs.new_empty((samples, steps, 2 * targets.shape[-1] + 1))


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


def _multilabel_margin_loss(self: torch.Tensor, target: torch.Tensor, reduction: int) -> Any:
    loss, among = torch.ops.aten.multilabel_margin_loss_forward.default(self, target, reduction)
    # for one sample the CPU returns a 0-dim loss, whatever the reduction
    return loss.new_empty(()) if target.ndim <= 1 else loss, among


def _batch_norm_in_evaluation(x: torch.Tensor, weight: Any, bias: Any, mean: torch.Tensor, *_: Any) -> Any:
    # PyTorch's own has the statistics that a GPU returns; the CPU returns none
    none = x.new_empty(0, dtype=mean.dtype)
    return torch.empty_like(x), none, torch.empty_like(none)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "geqrf": _geqrf,
    "histogram.bin_ct": lambda x, bins=100, **_: (x.new_empty(bins), x.new_empty(bins + 1)),
    "histogram.bins_tensor": lambda x, bins, **_: (x.new_empty(bins.shape[0] - 1), x.new_empty(bins.shape)),
    "_histogramdd_bin_edges": lambda x, bins, **_: [x.new_empty(n + 1) for n in bins],
    "_histogramdd_from_bin_cts": lambda x, bins, **_: x.new_empty(bins),
    "_histogramdd_from_bin_tensors": lambda x, bins, **_: x.new_empty([edges.shape[0] - 1 for edges in bins]),
    "_standard_gamma_grad _dirichlet_grad _sample_dirichlet binomial": lambda x, *_, **__: torch.empty_like(x),
    "_masked_softmax _masked_softmax_backward _logcumsumexp": lambda x, *_, **__: torch.empty_like(x),
    "fractional_max_pool3d_backward multi_margin_loss_backward": lambda grad, x, *_: torch.empty_like(x),
    "multilabel_margin_loss_backward _ctc_loss_backward.Tensor": lambda grad, x, *_: torch.empty_like(x),
    "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask": _quantized,
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": _quantized,
    "_ctc_loss.Tensor": _ctc_loss,
    "_grouped_mm": _grouped_mm,
    "_native_batch_norm_legit_no_training": _batch_norm_in_evaluation,
    "multilabel_margin_loss_forward": _multilabel_margin_loss,
}
#: operator -> its meta function
SHAPES = {name: function for names, function in _FUNCTIONS.items() for name in overloads(names)}
