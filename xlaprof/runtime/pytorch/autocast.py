"""``torch.autocast("xla")``: PyTorch/XLA's policy of which operators run in the lower precision and which in float32.

The policy is three lists of operators (others run in the dtypes of their arguments). Each operator gets a kernel on the
dispatch key ``AutocastXLA`` that casts its floating-point arguments and calls the operator again, below that key. The
key is excluded outside autocast regions, so there is no cost there.

As on other devices, the casts of parameters are cached while a region lasts: a weight that is used twice is cast once.
Python cannot reach PyTorch's own cache, so there is one here, emptied together with PyTorch's
(``torch.clear_autocast_cache``, which every outermost region calls at its end).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

# As registered in torch_xla/csrc/autocast_mode.cpp, without overloads for named dimensions, which tensors on xla do not
# have. ``op`` means ``op.default``.

#: run in the region's dtype, bfloat16 by default
LOWER_PRECISION = (
    "conv1d", "conv1d.padding", "conv2d", "conv2d.padding", "conv3d", "conv3d.padding", "conv_tbc", "conv_transpose1d",
    "conv_transpose2d.input", "conv_transpose3d.input", "bmm", "mm", "baddbmm", "addmm", "addbmm", "linear", "matmul",
    "einsum", "prelu", "relu", "max_pool2d",
    # listed there, but left out of the build because of a symbol that the linker did not find
    "scaled_dot_product_attention",
)  # fmt: skip

#: run in float32
FLOAT32 = (
    "batch_norm", "_softmax", "softmax.int", "log_softmax.int", "prod",
    "prod.dim_int", "cdist", "trace", "cholesky", "cholesky_inverse", "cholesky_solve", "inverse",
    "qr", "svd", "triangular_solve", "linalg_svd", "linalg_inv_ex", "reflection_pad1d", "reflection_pad2d",
    "replication_pad1d", "replication_pad2d", "replication_pad3d", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "mse_loss", "cosine_embedding_loss", "nll_loss", "nll_loss2d",
    "hinge_embedding_loss", "smooth_l1_loss", "cross_entropy_loss", "l1_loss", "margin_ranking_loss",
    "soft_margin_loss", "triplet_margin_loss", "multi_margin_loss", "ctc_loss.IntList", "ctc_loss.Tensor", "kl_div",
    "multilabel_margin_loss", "multilabel_margin_loss_forward",
)  # fmt: skip

#: run in float32 by the CPU's policy; PyTorch/XLA leaves them out, having no lowering ("enable if op is lowered")
FLOAT32_ONCE_LOWERED = (
    "grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "polar", "quantile", "quantile.scalar", "nanquantile",
    "nanquantile.scalar", "stft", "stft.center", "view_as_complex", "lu_solve", "orgqr", "ormqr", "pinverse",
    "poisson_nll_loss", "huber_loss", "fft_fft", "fft_ifft", "fft_fft2", "fft_ifft2", "fft_fftn", "fft_ifftn",
    "fft_rfft", "fft_irfft", "fft_rfft2", "fft_irfft2", "fft_rfftn", "fft_irfftn", "fft_hfft", "fft_ihfft",
    "linalg_cond", "linalg_cond.p_str", "linalg_matrix_rank", "linalg_matrix_rank.tol_tensor",
    "linalg_matrix_rank.atol_rtol_tensor", "linalg_matrix_rank.atol_rtol_float", "linalg_solve", "linalg_cholesky",
    "linalg_svdvals", "linalg_eigvals", "linalg_eigvalsh", "linalg_inv", "linalg_householder_product",
    "linalg_tensorinv", "linalg_tensorsolve", "fake_quantize_per_tensor_affine", "geqrf", "_lu_with_info",
    "linalg_qr", "linalg_cholesky_ex", "linalg_eig", "linalg_eigh", "linalg_lstsq",
)  # fmt: skip

#: run in the widest dtype among their arguments
PROMOTE = ("cat", "index_copy", "stack")

_XLA = "xla"
_FLOAT64 = torch.float64
_AUTOCAST_KEY = torch._C.DispatchKeySet(torch._C._dispatch_key_parse("AutocastXLA"))

#: (id of a parameter, was its cast made for a backward pass?) -> the parameter, kept alive, and its cast
_casts: dict[tuple[int, bool], tuple[torch.Tensor, torch.Tensor]] = {}


def overload(name: str) -> torch._ops.OpOverload:
    """The ATen overload of an entry of the policy: ``conv1d.padding``, or ``mm`` for ``mm.default``."""
    packet, _, kind = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), kind or "default")  # type: ignore[no-any-return]


def _eligible(value: torch.Tensor) -> bool:
    return value.is_floating_point() and value.dtype is not _FLOAT64 and value.device.type == _XLA


def _cast(value: Any, dtype: torch.dtype, lower: bool) -> Any:
    """``value`` with its ``xla`` tensors of another floating dtype (float64 apart) cast to ``dtype``."""
    if isinstance(value, torch.Tensor):
        if value.dtype is dtype or not _eligible(value):
            return value
        if lower and value.dtype is torch.float32 and value.requires_grad and value.is_leaf:
            return _cached(value, dtype)
        return value.to(dtype)
    if isinstance(value, (list, tuple)):
        return [_cast(v, dtype, lower) for v in value]
    return value


def _cached(parameter: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if not torch.is_autocast_cache_enabled() or parameter._is_view():
        return parameter.to(dtype)
    # A cast made under no_grad passes no gradient, so it has a key of its own.
    key = (id(parameter), torch.is_grad_enabled())
    found = _casts.get(key)
    if found is None or found[1].dtype is not dtype:
        found = _casts[key] = (parameter, parameter.to(dtype))
    return found[1]


#: an operator's arguments -> the dtype to cast them to, and whether that is the region's
Policy = Callable[[tuple[Any, ...]], tuple[torch.dtype, bool]]


def _promote(args: tuple[Any, ...]) -> tuple[torch.dtype, bool]:
    """float32 if any argument has it, else the region's dtype. Raises ``RuntimeError`` for a third dtype."""
    lower = torch.get_autocast_dtype(_XLA)
    widest = lower
    for value in args:
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor) and _eligible(tensor) and widest is not torch.float32:
                if tensor.dtype not in (lower, torch.float32):
                    raise RuntimeError(
                        f"Unexpected floating ScalarType in at::autocast::prioritize: {tensor.dtype} in a region of "
                        f"{lower}; cast it to {lower} or torch.float32"
                    )
                widest = tensor.dtype
    return widest, widest is lower


def _kernel(func: torch._ops.OpOverload, policy: Policy) -> Callable[..., Any]:
    def autocast(*args: Any, **kwargs: Any) -> Any:
        dtype, lower = policy(args)
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST_KEY):
            if kwargs:
                kwargs = {name: _cast(value, dtype, lower) for name, value in kwargs.items()}
            return func(*[_cast(value, dtype, lower) for value in args], **kwargs)

    return autocast


_libraries: list[torch.library.Library] = []  # registrations last as long as these


def install() -> None:
    """Register the policy."""
    if _libraries:
        return
    others = torch.library.Library("_", "IMPL")
    others.fallback(torch.library.fallthrough_kernel, "AutocastXLA")
    aten = torch.library.Library("aten", "IMPL")
    for policy, names in (
        (lambda args: (torch.get_autocast_dtype(_XLA), True), LOWER_PRECISION),
        (lambda args: (torch.float32, False), (*FLOAT32, *FLOAT32_ONCE_LOWERED)),
        (_promote, PROMOTE),
    ):
        for name in names:
            func = overload(name)
            aten.impl(func, _kernel(func, policy), "AutocastXLA")
    _libraries.extend((others, aten))
    _clear_with_pytorch()


def _clear_with_pytorch() -> None:
    # PyTorch has no hook for the end of a region, but looks this function up in ``torch`` each time.
    original = torch.clear_autocast_cache

    @functools.wraps(original)
    def clear_autocast_cache() -> None:
        _casts.clear()
        original()

    torch.clear_autocast_cache = clear_autocast_cache
