"""Finds calls that PyTorch's meta kernels accept and its CPU kernels may refuse.

``CHECKS[operator](*args, **kwargs)`` is true for calls that look wrong. It need not be certain: such a call is
rehearsed on the CPU (:mod:`.rehearse`), which raises PyTorch's error or accepts it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from xlaprof.runtime.lowering.registry import overloads
from xlaprof.runtime.trace.errors import final

Check = Callable[..., bool]
CHECKS: dict[str, Check] = {}


def _table(checks: dict[str, Check]) -> None:
    """Check the overloads of ``{"name other.Overload": check}``: of ``aten``, ``default`` unless named."""
    for names, check in checks.items():
        CHECKS.update(dict.fromkeys(overloads(names), check))


def cpp_name(dtype: torch.dtype) -> str:
    """``dtype`` as PyTorch's C++ names it in its messages: ``Float``, ``Long``."""
    return torch.empty(0, dtype=dtype).type().removeprefix("torch.").removesuffix("Tensor")


def no_kernel(kernel: str, dtype: torch.dtype) -> NotImplementedError:
    """What PyTorch raises where ``kernel`` does not take a dtype."""
    return NotImplementedError(f"\"{kernel}\" not implemented for '{cpp_name(dtype)}'")


def is_integral(x: torch.Tensor) -> bool:
    """Is it a tensor of integers or booleans?"""
    return not (x.dtype.is_floating_point or x.dtype.is_complex)


def _convolution(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, *rest: Any
) -> bool:
    groups = rest[-1]
    channels = weight.shape[1] * groups if transposed and weight.ndim > 1 else weight.shape[0]
    if bias is not None and (bias.shape != (channels,) or bias.dtype is not x.dtype):
        return True
    return (
        min((*stride, *dilation, groups), default=1) <= 0
        or min((*padding, *rest[0]), default=0) < 0
        or weight.ndim < 3
        or 0 in weight.shape
        or 0 in x.shape[2:]
        or (transposed and max(rest[0], default=0) >= min(stride, default=1))
    )


def _mixed_dtypes(x: Any, *others: Any, **_: Any) -> bool:
    """Tensors of several dtypes, where PyTorch does not promote; int64 is allowed for indices."""
    found = {t.dtype for t in (x, *others) if isinstance(t, torch.Tensor)}
    return len(found - {torch.int64}) > 1


def _several_dtypes(*args: Any, **_: Any) -> bool:
    """Tensors of several dtypes, those in lists too."""
    return len({t.dtype for t in tree_leaves(args) if isinstance(t, torch.Tensor)}) > 1


def _of_complex(*args: Any, **_: Any) -> bool:
    return any(isinstance(t, torch.Tensor) and t.is_complex() for t in args)


def _batch_norm(x: Any, weight: Any, bias: Any, mean: Any = None, var: Any = None, *rest: Any) -> bool:
    """Raise for parameters of another size, of which PyTorch's CPU kernel reads what is not theirs, or dies."""
    given = {"weight": weight, "bias": bias, "running_mean": mean, "running_var": var}
    tensors = {name: t for name, t in given.items() if isinstance(t, torch.Tensor)}
    features = x.shape[1] if x.ndim > 1 else None
    for name, t in tensors.items():
        if features is not None and t.numel() != features:
            raise final(RuntimeError(f"{name} should contain {features} elements not {t.numel()}"))
    return any(t.ndim != 1 for t in tensors.values()) or _several_dtypes(x, *tensors.values())


def _few_pivots(matrices: Any, pivots: Any, *_: Any, **__: Any) -> bool:
    """Raise for fewer pivots than rows: PyTorch's CPU kernel reads what is not theirs, or dies."""
    rows = math.prod(matrices.shape[:-2]) * min(matrices.shape[-2:], default=0)
    if matrices.ndim > 1 and pivots.numel() < rows:
        raise final(RuntimeError(f"torch.lu_unpack: Expected {rows} pivots, but got {pivots.numel()}"))
    return False


def _written_into(view: Callable[..., torch.Tensor]) -> Check:
    """Is what is written of another shape than the view that it is written into?"""

    def check(x: Any, src: Any, *args: Any, **kwargs: Any) -> bool:
        return bool(src.shape != view(torch.empty(x.shape, device="meta"), *args, **kwargs).shape)

    return check


def _masks_of_other_shapes(x: Any, indices: Any, *_: Any, **__: Any) -> bool:
    """Has a mask among the indices not the sizes of the dimensions that it selects from?"""
    at = 0
    for index in indices:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            at += 1
        else:
            if index.shape != x.shape[at : at + index.ndim]:
                return True
            at += index.ndim
    return False


def _segments(x: Any, *_: Any, lengths: Any = None, offsets: Any = None, **__: Any) -> bool:
    """Raise for segments of other numbers than floats, and for bounds of segments that are none."""
    if not x.dtype.is_floating_point:
        raise final(no_kernel("_segment_reduce_cpu", x.dtype))
    for name, bounds in (("lengths", lengths), ("offsets", offsets)):
        if bounds is not None and not is_integral(bounds):
            kernel = f"_segment_reduce_{name}_cpu_kernel1"
            raise no_kernel(kernel, bounds.dtype)
    return False


def _unsearched(sequence: torch.Tensor, values: Any) -> bool:
    """A sequence of a dtype in which nothing is searched, and something to search for."""
    if isinstance(values, torch.Tensor) and not values.numel():
        return False
    wide = (torch.uint16, torch.uint32, torch.uint64)
    return sequence.dtype is torch.bool or sequence.dtype.is_complex or sequence.dtype in wide


def _of_floats(kernel: str) -> Check:
    """Raise for a tensor of floats, which ``kernel`` does not take."""

    def check(*args: Any, **_: Any) -> bool:
        dtype = torch.result_type(*args)
        if dtype.is_floating_point or dtype.is_complex:
            raise no_kernel(kernel, dtype)
        return False

    return check


def _labels(x: Any, target: Any, *_: Any) -> bool:
    """Raise for classes that are no integers of 64 bits; the stand-ins' values would be refused first."""
    if target.dtype is not torch.int64 and not target.is_complex():
        raise final(RuntimeError(f"expected scalar type Long but found {cpp_name(target.dtype)}"))
    return bool(target.is_complex())


def _weighted_bags(x: Any, indices: Any, offsets: Any, *rest: Any, **named: Any) -> bool:
    """Have the weights of the samples another dtype than the table?"""
    weights = rest[3] if len(rest) > 3 else named.get("per_sample_weights")
    return weights is not None and weights.dtype is not x.dtype


def _added_rows(x: Any, dim: int, index: Any, source: Any, *_: Any, **__: Any) -> bool:
    """Are there more or fewer rows than indices, or rows of other sizes than the tensor's?"""
    if source.ndim != x.ndim:
        return True
    if not x.ndim:
        return bool(index.numel() != 1)
    wanted = list(x.shape)
    wanted[dim] = index.numel()
    return list(source.shape) != wanted


def _several_columns(x: Any, weight: Any, bias: Any, *_: Any) -> bool:
    """A weight or a bias that is no vector."""
    return any(one is not None and one.ndim != 1 for one in (weight, bias))


def _of_nothing(x: Any, *others: Any, **_: Any) -> bool:
    """Positions in a tensor that has none, or in a single number."""
    return 0 in x.shape or not x.ndim


def _each(*checks: Check) -> Check:
    return lambda *args, **kwargs: any(check(*args, **kwargs) for check in checks)


_table(
    {
        "scatter.src scatter.value scatter_add scatter_reduce.two gather": _of_nothing,
        "scatter_.src scatter_.value scatter_add_ scatter_reduce_.two": _of_nothing,
        "index_put _index_put_impl _unsafe_index_put index_put_ _index_put_impl_": _each(
            _of_nothing, _masks_of_other_shapes
        ),
        "convolution convolution_overrideable": _convolution,
        "addr nll_loss_forward polar": _mixed_dtypes,
        "nll_loss2d_forward": _each(_mixed_dtypes, lambda x, target, *_: target.shape != (*x.shape[:1], *x.shape[2:])),
        "linalg_cross binary_cross_entropy linear grid_sampler_3d": _several_dtypes,
        "_softmax_backward_data _log_softmax_backward_data": lambda grad, output, *_: (
            grad.shape != output.shape or grad.dtype is not output.dtype
        ),
        "index_copy put index_copy_ put_": _each(_mixed_dtypes, _of_nothing),
        "index_add index_add_": _each(_mixed_dtypes, _of_nothing, _added_rows),
        "gcd gcd_": _of_floats("gcd_cpu"),
        "lcm lcm_": _of_floats("lcm_cpu"),
        "_ctc_loss.Tensor": lambda log_probs, targets, *_: targets.ndim > 2,
        # their meta kernels check next to nothing
        "ormqr multi_margin_loss histogram.bin_ct histogram.bins_tensor _histogramdd_bin_edges "
        "_histogramdd_from_bin_cts _histogramdd_from_bin_tensors": lambda *_, **__: True,
        # cut down, the sizes before and after do not fit one another
        "max_pool2d_with_indices_backward max_pool3d_with_indices_backward": lambda grad, *_: (
            not grad.dtype.is_floating_point
        ),
        "multilabel_margin_loss_forward": _labels,
        "_embedding_bag _embedding_bag_forward_only": _weighted_bags,
        "lu_unpack": _few_pivots,
        "embedding_renorm_": lambda weight, *_: weight.ndim != 2 or is_integral(weight),
        "masked_fill.Scalar masked_fill.Tensor masked_fill_.Scalar masked_fill_.Tensor": lambda x, mask, *_: (
            mask.dtype is not torch.bool
        ),
        "bucketize.Tensor bucketize.Scalar": lambda x, boundaries, **_: (
            boundaries.ndim != 1 or _unsearched(boundaries, x)
        ),
        "median.dim nanmedian.dim": lambda x, dim, *_: x.ndim > 0 and not x.shape[dim],
        "searchsorted.Tensor searchsorted.Scalar": lambda sequence, values, *_, **__: _unsearched(sequence, values),
        "index_reduce index_reduce_": _each(
            _mixed_dtypes, _of_nothing, _added_rows, lambda x, dim, index, *_, **__: index.ndim > 1
        ),
        "native_layer_norm": _several_dtypes,
        "native_group_norm": _each(_several_dtypes, _several_columns),
        "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional": _batch_norm,
        "huber_loss mse_loss aminmax": _of_complex,
        "smooth_l1_loss": lambda x, target, reduction=1, beta=1.0: beta < 0 or _of_complex(x, target),
        "soft_margin_loss": lambda x, target, *_: x.shape != target.shape or _of_complex(x, target),
        "binary_cross_entropy_with_logits": lambda x, target, *_: not target.dtype.is_floating_point,
        "pixel_unshuffle": lambda x, by: by > 0 and any(size % by for size in x.shape[-2:]),
        "cummax cummin sort sort.stable": lambda x, dim=-1, *_, **__: not x.ndim and dim not in (0, -1),
        "segment_reduce": _segments,
        "floor_divide_.Tensor": lambda x, other: torch.broadcast_shapes(x.shape, other.shape) != x.shape,
        "addr_": lambda x, one, other, **_: x.shape != (*one.shape, *other.shape),
        "mul_.Tensor mul_.Scalar addcmul_ addcdiv_": lambda x, *others, **_: any(
            not torch.can_cast(torch.result_type(x, other), x.dtype) for other in others
        ),
        "logit_ frac_": lambda x, *_, **__: is_integral(x),
        "addmv": lambda x, matrix, vector, **_: (
            (matrix.ndim, vector.ndim) != (2, 1)
            or x.ndim > 1
            or x.numel() not in (1, len(matrix))
            or _mixed_dtypes(x, matrix, vector)
        ),
        "index_select index_fill.int_Scalar index_fill.int_Tensor index_fill_.int_Scalar index_fill_.int_Tensor": (
            lambda x, dim, index, *_: index.dtype is not torch.int64 or index.ndim > 1 or _of_nothing(x)
        ),
        "diagonal_scatter": _written_into(torch.diagonal),
        "select_scatter": _written_into(torch.select),
        "slice_scatter": _written_into(torch.ops.aten.slice.Tensor),
        "masked_scatter masked_scatter_": lambda x, mask, source: (
            mask.dtype is not torch.bool or source.dtype is not x.dtype
        ),
    }
)

# -- distributions ------------------------------------------------------------------------------------


def _of_integers(x: Any, kernel: str) -> bool:
    """Raise for a tensor of integers, which ``kernel`` does not take; nothing is wrong with any other."""
    if is_integral(x):
        raise no_kernel(kernel, x.dtype)
    return False


def _uniform(x: Any, low: float = 0.0, high: float = 1.0, **_: Any) -> bool:
    _of_integers(x, "check_uniform_bounds")
    return not torch.finfo(x.dtype).min <= low <= high <= torch.finfo(x.dtype).max


def _multinomial(probabilities: Any, count: int, replacement: bool = False, **_: Any) -> bool:
    categories = probabilities.shape[-1] if probabilities.ndim else 1
    few = not replacement and count > categories
    return count <= 0 or few or categories > 1 << 24 or not probabilities.dtype.is_floating_point


def _outside(dtype: torch.dtype, low: int | None, high: int | None) -> bool:
    """Do integers in [low, high) not exist, or not fit ``dtype``?"""
    bottom: float = 0
    top: float = 1
    if dtype is not torch.bool:
        info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        bottom, top = info.min, info.max
    assert low is not None
    return low < bottom or (high is not None and (high <= low or high - 1 > top))


_table(
    {
        "uniform_ uniform": _uniform,
        "bernoulli": lambda x, *_, **__: x.dtype is not torch.bool and _of_integers(x, "bernoulli_tensor_p_"),
        "bernoulli_.float bernoulli.p": lambda x, p=0.5, **_: not 0.0 <= p <= 1.0,
        "poisson": lambda x, *_, **__: _of_integers(x, "poisson"),
        "normal_": lambda x, mean=0.0, std=1.0, **_: _of_integers(x, "normal_kernel") or not std >= 0.0,
        "log_normal_": lambda x, mean=1.0, std=2.0, **_: _of_integers(x, "log_normal") or not std > 0.0,
        "exponential_": lambda x, rate=1.0, **_: not rate > 0.0 or not x.dtype.is_floating_point,
        "cauchy_": lambda x, median=0.0, sigma=1.0, **_: not sigma > 0.0 or not x.dtype.is_floating_point,
        "geometric_": lambda x, p, **_: not 0.0 < p < 1.0,
        "multinomial": _multinomial,
        "random_.from random_.to": lambda x, *bounds, **_: _outside(x.dtype, *(0, *bounds)[-2:]),
        "randint randint.generator randint.low randint.low_generator": lambda *bounds_and_size, dtype=None, **_: (
            _outside(dtype or torch.int64, *(0, *bounds_and_size[:-1])[-2:])
        ),
        "randint_like randint_like.low_dtype": lambda x, *bounds, dtype=None, **_: _outside(
            dtype or x.dtype, *(0, *bounds)[-2:]
        ),
    }
)
