"""Finds calls that PyTorch's meta kernels accept and its CPU kernels may refuse.

``CHECKS[operator](*args, **kwargs)`` is true for calls that look wrong. It need not be certain: such a call is
rehearsed on the CPU (:mod:`.rehearse`), which raises PyTorch's error or accepts it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from xlaprof.runtime.trace.ops import registering

Check = Callable[..., bool]
CHECKS: dict[str, Check] = {}
_suspect = registering(CHECKS)


@_suspect("aten.convolution.default", "aten.convolution_overrideable.default")
def _convolution(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, *rest: Any
) -> bool:
    groups = rest[-1]
    if bias is not None and (bias.ndim != 1 or bias.dtype is not x.dtype):
        return True
    return (
        min((*stride, *dilation, groups), default=1) <= 0
        or min(padding, default=0) < 0
        or weight.ndim < 3
        or 0 in weight.shape
        or 0 in x.shape[2:]
    )


@_suspect(
    "aten.addr.default",
    "aten.linalg_cross.default",
    "aten.nll_loss_forward.default",
    "aten.nll_loss2d_forward.default",
    "aten.index_copy.default",
    "aten.index_add.default",
    "aten.index_reduce.default",
    "aten.put.default",
    "aten.index_add_.default",
    "aten.index_copy_.default",
    "aten.index_reduce_.default",
    "aten.put_.default",
    "aten.native_layer_norm.default",
    "aten.native_group_norm.default",
    "aten.native_batch_norm.default",
    "aten._native_batch_norm_legit.default",
    "aten._native_batch_norm_legit_functional.default",
    "aten.grid_sampler_3d.default",
    "aten.polar.default",
    "aten.binary_cross_entropy.default",
    "aten._softmax_backward_data.default",
)
def _mixed_dtypes(x: Any, *others: Any, **_: Any) -> bool:
    """Tensors of several dtypes, where PyTorch does not promote; int64 is allowed for indices."""
    found = {t.dtype for t in (x, *others) if isinstance(t, torch.Tensor)}
    return len(found - {torch.int64}) > 1


@_suspect("aten.mul_.Tensor", "aten.mul_.Scalar", "aten.addcmul_.default", "aten.addcdiv_.default")
def _written_with_another_type(x: Any, *others: Any, **_: Any) -> bool:
    return not all(torch.can_cast(torch.result_type(x, other), x.dtype) for other in others)


@_suspect("aten.logit_.default", "aten.frac_.default")
def _integers(x: Any, *_: Any, **__: Any) -> bool:
    return not (x.dtype.is_floating_point or x.dtype.is_complex)


@_suspect("aten._histogramdd_bin_edges.default", "aten._histogramdd_from_bin_cts.default")
def _histogramdd(x: Any, bins: Any, **_: Any) -> bool:
    return bool(x.ndim < 2 or len(bins) != x.shape[-1] or min(bins) <= 0)


@_suspect("aten.addmv.default")
def _addmv(x: Any, matrix: Any, vector: Any, **_: Any) -> bool:
    return (matrix.ndim, vector.ndim) != (2, 1) or _mixed_dtypes(x, matrix, vector)


@_suspect(
    "aten.index_select.default",
    "aten.index_fill.int_Scalar",
    "aten.index_fill.int_Tensor",
    "aten.index_fill_.int_Scalar",
    "aten.index_fill_.int_Tensor",
)
def _index_of_rows(x: Any, dim: int, index: Any, *_: Any) -> bool:
    return index.dtype is not torch.int64 or index.ndim > 1


@_suspect("aten.diagonal_scatter.default")
def _diagonal_scatter(x: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> bool:
    shape = torch.empty(x.shape, device="meta").diagonal(offset, dim1, dim2).shape
    return bool(src.shape != shape)


@_suspect("aten.multinomial.default")
def _multinomial(probabilities: Any, count: int, replacement: bool = False, **_: Any) -> bool:
    categories = probabilities.shape[-1] if probabilities.ndim else 1
    few = not replacement and count > categories
    return count <= 0 or few or categories > 1 << 24 or not probabilities.dtype.is_floating_point


_DTYPE = {
    torch.uint8: "Byte", torch.int8: "Char", torch.int16: "Short", torch.int32: "Int", torch.int64: "Long",
    torch.bool: "Bool",
}  # fmt: skip


def _continuous(x: Any, name: str) -> None:
    if x.dtype in _DTYPE:
        raise NotImplementedError(f"\"{name}\" not implemented for '{_DTYPE[x.dtype]}'")


@_suspect("aten.uniform_.default", "aten.uniform.default")
def _uniform(x: Any, low: float = 0.0, high: float = 1.0, **_: Any) -> bool:
    _continuous(x, "check_uniform_bounds")
    return not torch.finfo(x.dtype).min <= low <= high <= torch.finfo(x.dtype).max


@_suspect("aten.bernoulli.default")
def _by_probability(x: Any, *_: Any, **__: Any) -> bool:
    _continuous(x, "bernoulli_tensor_p_")
    return False


@_suspect("aten.poisson.default")
def _by_rate(x: Any, *_: Any, **__: Any) -> bool:
    _continuous(x, "poisson")
    return False


@_suspect("aten.normal_.default")
def _normal(x: Any, mean: float = 0.0, std: float = 1.0, **_: Any) -> bool:
    _continuous(x, "normal_kernel")
    return not std >= 0.0


@_suspect("aten.log_normal_.default")
def _log_normal(x: Any, mean: float = 1.0, std: float = 2.0, **_: Any) -> bool:
    _continuous(x, "log_normal")
    return not std > 0.0


@_suspect("aten.exponential_.default")
def _exponential(x: Any, rate: float = 1.0, **_: Any) -> bool:
    return not rate > 0.0 or not x.dtype.is_floating_point


@_suspect("aten.cauchy_.default")
def _cauchy(x: Any, median: float = 0.0, sigma: float = 1.0, **_: Any) -> bool:
    return not sigma > 0.0 or not x.dtype.is_floating_point


@_suspect("aten.geometric_.default")
def _geometric(x: Any, p: float, **_: Any) -> bool:
    return not 0.0 < p < 1.0


@_suspect("aten.random_.from", "aten.random_.to")
def _random(x: Any, *bounds: int | None, **_: Any) -> bool:
    return _outside(x.dtype, *(0, *bounds)[-2:])


@_suspect("aten.randint.low", "aten.randint.low_generator", "aten.randint.default", "aten.randint.generator")
def _randint(*bounds_and_size: Any, dtype: torch.dtype | None = None, **_: Any) -> bool:
    return _outside(dtype or torch.int64, *(0, *bounds_and_size[:-1])[-2:])


def _outside(dtype: torch.dtype, low: int | None, high: int | None) -> bool:
    """Do integers in [low, high) not exist, or not fit ``dtype``?"""
    bottom: float = 0
    top: float = 1
    if dtype is not torch.bool:
        info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        bottom, top = info.min, info.max
    assert low is not None
    return low < bottom or (high is not None and (high <= low or high - 1 > top))


@_suspect("aten.bernoulli_.float", "aten.bernoulli.p")
def _bernoulli(x: Any, p: float = 0.5, **_: Any) -> bool:
    return not 0.0 <= p <= 1.0


@_suspect("aten.masked_scatter.default", "aten.masked_scatter_.default")
def _masked_scatter(x: Any, mask: Any, source: Any) -> bool:
    return mask.dtype is not torch.bool or source.dtype is not x.dtype
