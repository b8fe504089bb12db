"""Handlers that do as PyTorch/XLA does, although it costs more: used while :data:`xlaprof.runtime.parity.strict`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from xlaprof.runtime import metrics, parity
from xlaprof.runtime.trace.ops import Op, functional_twin, is_view
from xlaprof.runtime.transfer import host

from . import fallback
from .custom import has_kernel
from .parity_ops import DECOMPOSED, LOWERED
from .types import Args, Handler, Kwargs

aten = torch.ops.aten


def handler(op: Op, ordinary: Callable[[], Handler]) -> Handler:
    """The handler of ``op`` in strict mode; ``ordinary()`` makes the one it has otherwise."""
    op.bake(_BAKED.get(str(op.twin or op.func), ()))
    if op.name in _INDEXING:
        return _with_numbers(ordinary())
    if op.name == "aten.embedding_dense_backward.default":
        return _gradient_of_embedding(ordinary())
    return ordinary() if lowered(op.func) else _on_cpu(op)


#: numbers that PyTorch/XLA makes part of the graph, and we do not
_BAKED = {
    "aten.threshold.default": ("threshold", "value"),
    "aten.threshold_backward.default": ("threshold",),
    "aten.hardtanh_backward.default": ("min_val", "max_val"),
    "aten.pow.Scalar": ("self",),
    **{f"aten.{name}.correction": ("correction",) for name in ("std", "std_mean", "var", "var_mean")},
}


def lowered(func: torch._ops.OpOverload) -> bool:
    """Does PyTorch/XLA compute ``func`` on its device, itself or as other operators?"""
    if func.namespace not in ("aten", "torchvision") or is_view(func) or str(func) in _STRUCTURE:
        return True
    if func._schema.name.split("::")[-1] in DECOMPOSED or func._schema.name.startswith("aten::_foreach_"):
        return True
    writes = any(a.alias_info and a.alias_info.is_write for a in func._schema.arguments)
    forms = [func, functional_twin(func)] if writes else [func]
    composite = "CompositeImplicitAutograd", "CompositeExplicitAutograd"  # made of other operators for every device
    return any(form is not None and (_name(form) in LOWERED or has_kernel(form, *composite)) for form in forms)


def _name(func: torch._ops.OpOverload) -> str:
    base = func._schema.name.split("::")[-1]
    return f"{base}.{func._schema.overload_name}" if func._schema.overload_name else base


_INDEXING = frozenset(
    {"aten.index.Tensor", "aten._unsafe_index.Tensor", "aten.index_put.default", "aten._unsafe_index_put.default",
     "aten.index_put_.default", "aten._index_put_impl_.default"}
)  # fmt: skip
#: not in the table, but not computed on the CPU either
_STRUCTURE = frozenset({"aten.empty_like.default", "aten.new_empty.default", "aten.lift.default", "aten.equal.default"})


def _on_cpu(op: Op) -> Handler:
    tried = f"xla::{op.aten.removeprefix('aten::')}" if op.name in _TRIED else ""

    def record(args: Args, kwargs: Kwargs) -> Any:
        args, kwargs = host.adopt(host.tape_of(args, kwargs), op, args, kwargs)
        if tried:
            metrics.count(tried)
        return fallback.on_cpu(op, args, kwargs)

    return record


#: PyTorch/XLA also counts these as ``xla::op``, and computes them on the device only with ``XLA_EXPERIMENTAL``
_TRIED = frozenset({"aten.nonzero.default", "aten.masked_select.default"})


def _with_numbers(ordinary: Handler) -> Handler:
    """Indexing with masks replaced by positions, and with indices wrapped, by operations of the graph."""

    def record(args: Args, kwargs: Kwargs) -> Any:
        tensor, indices, *rest = args
        positions: list[Any] = []
        for index in indices:
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                found = aten.nonzero.default(index)
                positions += [aten.select.int(found, 1, i) for i in range(index.ndim)]
            else:
                positions.append(index)
        wrapped = [
            index
            if index is None or index.device.type != "xla" or dim >= tensor.ndim
            else _wrap(index, tensor.shape[dim])
            for dim, index in enumerate(positions)
        ]
        return ordinary((tensor, wrapped, *rest), kwargs)

    return record


def _gradient_of_embedding(ordinary: Handler) -> Handler:
    def record(args: Args, kwargs: Kwargs) -> Any:
        grad, indices, length, *rest = args
        return ordinary((grad, _wrap(indices, length), length, *rest), kwargs)

    return record


def _wrap(index: torch.Tensor, length: int) -> torch.Tensor:
    wrapped: torch.Tensor = aten.where.self(aten.lt.Scalar(index, 0), aten.add.Tensor(index, length), index)
    return wrapped


# -- gradients are clipped with the norm read ------------------------------------------------------------


def _choose_clip_grad_norm() -> None:
    """Let PyTorch clip gradients as PyTorch/XLA does in strict mode, by its own function otherwise."""
    chosen = _clip_grad_norm if parity.strict else _torchs_clip_grad_norm
    torch.nn.utils.clip_grad_norm_ = torch.nn.utils.clip_grad.clip_grad_norm_ = chosen


_torchs_clip_grad_norm = torch.nn.utils.clip_grad_norm_


def _clip_grad_norm(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(grads, norm_type, foreach=foreach)
    if error_if_nonfinite and (norm.isnan() or norm.isinf()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
            "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm, foreach)
    return norm


parity.on_change.append(_choose_clip_grad_norm)
if parity.strict:  # from the environment
    _choose_clip_grad_norm()
