"""Operators composed of other operators, which are recorded; the composed one has no lowering.

PyTorch's C++ kernels compose some of them, without a decomposition; others write to an argument that is not their
first, or depend on the strides of one.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from xlaprof.runtime.execution import value_checks
from xlaprof.runtime.lowering.polynomials import POLYNOMIALS
from xlaprof.runtime.shapes.checks import is_integral
from xlaprof.runtime.shapes.rehearse import rehearse
from xlaprof.runtime.trace.errors import final
from xlaprof.runtime.trace.ops import Op
from xlaprof.runtime.trace.storage import View
from xlaprof.runtime.trace.tensor import XLATensor, handle
from xlaprof.runtime.transfer import host

from . import handlers
from .custom import kernel
from .handlers import SPECIAL, special
from .out_variants import out as write_to
from .out_variants import write_out
from .types import Args, Handler, Kwargs

aten = torch.ops.aten

_library = torch.library.Library("aten", "IMPL")
_matmul_out = write_to(Op(aten.matmul.out))


def install() -> None:
    """Register kernels for operators that PyTorch's own composition could only compute with real storage."""
    # PyTorch's kernel writes to a reshaped ``out`` that shares its storage implementation: wrapped tensors do not.
    _library.impl("matmul.out", lambda a, b, *, out: _matmul_out((a, b), {"out": out}), "XLA")
    # PyTorch's kernel treats lengths on the host as data wherever a tensor subclass takes part.
    _library.impl("ctc_loss.Tensor", lambda *args, **kwargs: ctc_loss_of_tensors(args, kwargs), "AutogradXLA")
    # PyTorch's kernel compares with all classes: no operator knows which there are.
    _library.impl("one_hot", lambda *args, **kwargs: one_hot(args, kwargs), "AutogradXLA")


# -- composed by PyTorch's kernels ---------------------------------------------------------------------

_COMPOSED = {
    "CompositeExplicitAutograd": (
        "allclose.default",
        "_is_any_true.default",
        "_is_all_true.default",
        "conv_tbc.default",
        *(f"special_{name}.{scalar}" for name in POLYNOMIALS for scalar in ("x_scalar", "n_scalar")),
    ),
    "CompositeExplicitAutogradNonFunctional": ("linalg_pinv.atol_rtol_tensor",),
}


for _key, _names in _COMPOSED.items():
    for _name in _names:
        _packet, _overload = _name.split(".")
        SPECIAL[f"aten.{_name}"] = kernel(getattr(getattr(aten, _packet), _overload), _key)

# -- determinants --------------------------------------------------------------------------------------


def _lu(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The factors that the gradient expects: of the transpose where PyTorch factorises that to avoid a copy."""
    lu, pivots, _ = aten.linalg_lu_factor_ex(a.mT if a.is_contiguous() and not a.is_complex() else a)
    straight = torch.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype, device=pivots.device)
    swaps = (pivots != straight).sum(-1)
    return lu, pivots, (1 - 2 * (swaps % 2)).to(a.dtype)


def _of_squares(op: Op, a: torch.Tensor) -> None:
    """Raise what PyTorch raises of other matrices, integers and lower floats: a factorisation takes them."""
    if a.ndim < 2 or a.shape[-1] != a.shape[-2] or is_integral(a) or a.dtype.itemsize < 4:
        rehearse(op, (a,), {})


_det, _slogdet = Op(aten._linalg_det.default), Op(aten._linalg_slogdet.default)


@special("aten._linalg_det.default")
def det(args: Args, kwargs: Kwargs) -> Any:
    _of_squares(_det, args[0])
    lu, pivots, sign = _lu(args[0])
    return lu.diagonal(0, -2, -1).prod(-1) * sign, lu, pivots


@special("aten._linalg_slogdet.default")
def slogdet(args: Args, kwargs: Kwargs) -> Any:
    _of_squares(_slogdet, args[0])
    lu, pivots, sign = _lu(args[0])
    diagonal = lu.diagonal(0, -2, -1)
    return diagonal.sgn().prod(-1) * sign, diagonal.abs().log().sum(-1), lu, pivots


@special("aten._linalg_check_errors.default")
def check_errors(args: Args, kwargs: Kwargs) -> None:
    """Raise PyTorch's error if a factorisation failed. Costs one read, as on any device."""
    info, *rest = args
    if info.numel():
        (value,) = host.read([info._storage], "aten::_linalg_check_errors", keep_pending=True)
        aten._linalg_check_errors(value, *rest, **kwargs)


# -- least squares -------------------------------------------------------------------------------------


@special("aten.linalg_lstsq.default")
def lstsq(args: Args, kwargs: Kwargs) -> Any:
    """What LAPACK's driver returns: ``gels`` assumes full rank, the others find the rank by singular values."""
    a, b, *rest = args
    rcond = rest[0] if rest else kwargs.get("rcond")
    driver = kwargs.get("driver") or "gelsy"
    if driver not in ("gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(
            f"torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), got {driver}"
        )
    if a.dtype is not b.dtype or not 0 <= a.ndim - b.ndim <= 1 or a.ndim < 2:
        rehearse(Op(aten.linalg_lstsq.default), args, kwargs)
    rows, columns = a.shape[-2:]
    vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    right = b.unsqueeze(-1) if vector else b
    if rcond is None:
        rcond = torch.finfo(a.dtype).eps * max(rows, columns)
    none = a.new_empty((0,)).real
    rank, singular = a.new_empty((0,), dtype=torch.int64), none
    if driver == "gels":
        x = _full_rank(a, right)
        full = True
    else:
        u, s, vh = aten._linalg_svd(a, False, True)
        kept = s > rcond * s[..., :1] if s.shape[-1] else s > 0
        rank = kept.sum(-1)
        inverse = torch.where(kept, s.reciprocal(), 0).unsqueeze(-1)
        x = vh.mH @ ((u.mH @ right) * inverse)
        singular = none if driver == "gelsy" else s
        full = driver != "gelsy" and rows > columns and bool((rank == columns).all().item())
    residuals = none
    if full and rows > columns:
        residuals = (a @ x - right).abs().square().sum(-2)
        residuals = residuals.squeeze(-1) if vector else residuals
    return x.squeeze(-1) if vector else x, residuals, rank, singular


def _full_rank(a: torch.Tensor, b: torch.Tensor) -> Any:
    if a.shape[-2] >= a.shape[-1]:
        q, r = aten.linalg_qr(a)
        return aten.linalg_solve_triangular(r, q.mH @ b, upper=True)
    q, r = aten.linalg_qr(a.mH)
    return q @ aten.linalg_solve_triangular(r.mH, b, upper=False)


# -- sequences of several lengths ---------------------------------------------------------------------------------


@special("aten._ctc_loss.default")
def ctc_loss(args: Args, kwargs: Kwargs) -> Any:
    """Lengths are data, even as Python numbers: batches of one shape share a program."""
    log_probs, targets, inputs, lengths, *rest = args
    blank = [*rest, kwargs.get("blank", 0)][0]
    steps, samples, classes = log_probs.shape
    fits = len(inputs) == len(lengths) == samples and min(*inputs, *lengths, blank) >= 0
    if targets.ndim == 1:  # one after the other
        there = targets.numel() == sum(lengths)
    else:
        there = targets.ndim == 2 and max(lengths, default=0) <= targets.shape[1]
    if not fits or not there or max(inputs) > steps or blank >= classes:
        rehearse(_CTC, args, kwargs)
    input_lengths, target_lengths = torch.tensor([inputs, lengths]).to(log_probs.device)
    longest = max(lengths)
    if targets.ndim == 1:  # concatenated
        starts = target_lengths.cumsum(0) - target_lengths
        places = starts.unsqueeze(1) + torch.arange(longest, device=log_probs.device)
        padded = torch.cat([targets, targets.new_zeros(longest)])
        targets = padded[places.clamp(max=padded.shape[0] - 1)] if longest else targets.new_zeros((samples, 0))
    return aten._ctc_loss.Tensor(log_probs, targets[:, :longest], input_lengths, target_lengths, *rest, **kwargs)


@special("aten._ctc_loss_backward.default")
def ctc_loss_backward(args: Args, kwargs: Kwargs) -> Any:
    grad, log_probs, targets, inputs, lengths, *rest = args
    input_lengths, target_lengths = torch.tensor([inputs, lengths]).to(log_probs.device)
    return aten._ctc_loss_backward.Tensor(grad, log_probs, targets, input_lengths, target_lengths, *rest, **kwargs)


_CTC = Op(aten._ctc_loss.default)


def _lengths_from_anywhere(numbers: Any, tensors: Any, at: int) -> None:
    """Lengths may be on the host, as loaders give them: then they are known, and are checked."""
    plain = handlers.general(Op(tensors))

    def record(args: Args, kwargs: Kwargs) -> Any:
        lengths = args[at : at + 2]
        if all(type(x) is XLATensor for x in lengths):
            return plain(args, kwargs)
        if all(x.device.type == "cpu" for x in lengths):
            return numbers(*args[:at], *(x.tolist() for x in lengths), *args[at + 2 :], **kwargs)
        return plain((*args[:at], *(x.to(args[0].device) for x in lengths), *args[at + 2 :]), kwargs)

    special(Op(tensors).name)(record)


@special("aten.ctc_loss.Tensor")
def ctc_loss_of_tensors(args: Args, kwargs: Kwargs) -> Any:
    """The loss, with lengths on the host as numbers: PyTorch's mean would divide tensors on the device by them."""
    if all(x.device.type == "cpu" for x in args[2:4]):
        return aten.ctc_loss.IntList(*args[:2], *(x.tolist() for x in args[2:4]), *args[4:], **kwargs)
    return aten.ctc_loss.Tensor.decompose(*args, **kwargs)


_lengths_from_anywhere(aten._ctc_loss.default, aten._ctc_loss.Tensor, 2)
_lengths_from_anywhere(aten._ctc_loss_backward.default, aten._ctc_loss_backward.Tensor, 3)


@special("aten._pack_padded_sequence.default")
def pack_padded_sequence(args: Args, kwargs: Kwargs) -> Any:
    """The rows of each step, one step after the other, and the steps' batch sizes, kept on the host."""
    padded, lengths, batch_first = args
    if lengths.device.type != "cpu":
        where = f"{lengths.ndim}D {lengths.device} {lengths.dtype}"
        raise final(RuntimeError(f"'lengths' argument should be a 1D CPU int64 tensor, but got {where} tensor"))
    # PyTorch packs row numbers on the host and raises its own errors: a rehearsal would not know the lengths.
    numbers = torch.arange(padded.shape[:2].numel()).view(padded.shape[:2])
    try:
        rows, sizes = aten._pack_padded_sequence.default(numbers, lengths, batch_first)
    except RuntimeError as error:
        raise final(error) from None
    return padded.flatten(0, 1).index_select(0, rows.to(padded.device)), sizes


# -- classes as columns ------------------------------------------------------------------------------------

_own = torch.library.Library("xla", "FRAGMENT")
_own.define("class_numbers(Tensor self, int num_classes) -> Tensor")
_own.impl("class_numbers", lambda numbers, _: torch.empty_like(numbers), "Meta")
SPECIAL["xla.class_numbers.default"] = handlers.general(Op(torch.ops.xla.class_numbers.default))

_one_hot = kernel(aten.one_hot.default, "CompositeImplicitAutograd")


@special("aten.one_hot.default")
def one_hot(args: Args, kwargs: Kwargs) -> Any:
    """PyTorch's composition, which takes no number for a mistake; with debug checks, over numbers that are checked."""
    numbers, classes = args[0], [*args[1:], kwargs.get("num_classes", -1)][0]
    if not numbers.numel() and classes < 1:
        rehearse(Op(aten.one_hot.default), args, kwargs)
    if value_checks.enabled and numbers.dtype is torch.int64:
        numbers = torch.ops.xla.class_numbers(numbers, classes if classes > 0 else sys.maxsize)
    return _one_hot((numbers, classes), {})


# -- over the storage behind an argument -----------------------------------------------------------------


@special("aten.as_strided_scatter.default")
def as_strided_scatter(args: Args, kwargs: Kwargs) -> Any:
    """A copy of the whole storage that ``self`` shows, with ``src`` written where the strides point."""
    tensor, src, size, stride, *rest = args
    offset = rest[0] if rest else kwargs.get("storage_offset")
    offset = tensor.storage_offset() if offset is None else offset
    if not isinstance(tensor._storage, View):
        result = storage = tensor.clone()
    else:
        storage = handle(tensor._storage.base).clone()
        result = storage.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    shown = storage.as_strided(size, stride, offset)
    if shown.shape != src.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, "
            f"slice size = {list(shown.shape)}"
        )
    shown.copy_(src)
    return result


_left_aligned = Op(aten._nested_tensor_from_mask_left_aligned.default)


@special("aten._nested_tensor_from_mask_left_aligned.default")
def left_aligned(args: Args, kwargs: Kwargs) -> bool:
    """Is the padding at the end of every row? One number is read: ``TransformerEncoder`` needs it on the host."""
    tensor, mask = args
    if mask.dtype is not torch.bool or mask.ndim != 2 or tensor.ndim != 3 or mask.shape != tensor.shape[:2]:
        rehearse(_left_aligned, args, kwargs)
    return bool((mask[:, 1:] <= mask[:, :-1]).all())


# -- writing to other arguments than the first ----------------------------------------------------------


@special("aten.native_batch_norm.default", "aten._native_batch_norm_legit.default", "aten.cudnn_batch_norm.default")
def batch_norm(args: Args, kwargs: Kwargs) -> Any:
    """Batch norm by its functional form, which returns the running statistics: they are written afterwards."""
    x, weight, bias, mean, var, training, momentum, eps = args
    if mean is None or var is None:
        return aten._native_batch_norm_legit.no_stats(x, weight, bias, training, momentum, eps)
    if not training:  # nothing of the batch is saved: PyTorch's own shapes of the functional form say that it is
        return aten._native_batch_norm_legit_no_training.default(x, weight, bias, mean, var, momentum, eps)
    y, saved_mean, saved_rstd, new_mean, new_var = aten._native_batch_norm_legit_functional.default(
        x, weight, bias, mean, var, training, momentum, eps
    )
    # Half precision keeps float32 statistics beside parameters of float32 only.
    dtype = x.dtype if x.dtype is mean.dtype else saved_mean.dtype
    mean.copy_(new_mean)
    var.copy_(new_var)
    if saved_mean.dtype is not dtype:
        saved_mean, saved_rstd = saved_mean.to(dtype), saved_rstd.to(dtype)
    return y, saved_mean, saved_rstd


@special("aten._batch_norm_with_update.default")
def batch_norm_with_update(args: Args, kwargs: Kwargs) -> Any:
    x, weight, bias, mean, var, momentum, eps = args
    return *batch_norm((x, weight, bias, mean, var, True, momentum, eps), {}), x.new_empty((0,), dtype=torch.uint8)


@special("aten.rrelu_with_noise.default")
def rrelu(args: Args, kwargs: Kwargs) -> Any:
    """The second argument keeps the random slopes, for the gradient."""
    y, noise = aten.rrelu_with_noise_functional.default(*args, **kwargs)
    args[1].copy_(noise)
    return y


@special("aten.rrelu_with_noise_.default")
def rrelu_(args: Args, kwargs: Kwargs) -> Any:
    return args[0].copy_(rrelu(args, kwargs))


def _out_variant(name: str, compute: Handler, *outputs: str) -> None:
    """The overload ``name`` writes what ``compute`` returns to its arguments ``outputs``."""

    @special(name)
    def record(args: Args, kwargs: Kwargs) -> Any:
        results = compute(args, {key: value for key, value in kwargs.items() if key not in outputs})
        return write_out([kwargs[key] for key in outputs], results if isinstance(results, tuple) else (results,))


_out_variant("aten.rrelu_with_noise.out", rrelu, "out")
_out_variant("aten._native_batch_norm_legit.out", batch_norm, "out", "save_mean", "save_invstd")
_out_variant("aten._batch_norm_with_update.out", batch_norm_with_update, "out", "save_mean", "save_invstd", "reserve")


_polygamma_ = Op(aten.polygamma_.default)


@special("aten.polygamma_.default")
def polygamma_(args: Args, kwargs: Kwargs) -> Any:
    """The one in-place operator whose functional form has its arguments in another order."""
    x, n = args
    if is_integral(x):
        rehearse(_polygamma_, args, kwargs)
    return x.copy_(aten.polygamma(n, x))


# -- gradients that are sparse elsewhere -----------------------------------------------------------------

_bag_backward = Op(aten._embedding_bag_backward.default)
_bag_gradient = handlers.general(_bag_backward)
_SPARSE = _bag_backward.names.index("sparse")


@special("aten._embedding_bag_backward.default")
def embedding_bag_backward(args: Args, kwargs: Kwargs) -> Any:
    """The gradient of an ``EmbeddingBag`` is dense here, with ``sparse=True`` too, as in PyTorch/XLA."""
    return _bag_gradient((*args[:_SPARSE], False, *args[_SPARSE + 1 :]), kwargs)
