"""``--strict-parity``: what is done as PyTorch/XLA 2.9 does it, although it could cost less.

The default runtime already shows the compilations, executions and reads that PyTorch/XLA would; where it shows fewer
it is because it does less. In strict mode it really does what PyTorch/XLA does:

- every distinct number that a graph reads is a transfer of its own (:mod:`.transfer.upload`), and one seed a step;
- sizes that values decide are found on the CPU: ``nonzero``, masks, ``unique``... bring their inputs to the host each
  time, and their results back;
- operators that PyTorch/XLA does not lower run on the CPU, also where we lower them;
- ``torch.compile`` takes a number that was read for a constant, so each new one is traced again; and whenever it
  compiles, it clears all counters, not the metrics;
- a graph of Dynamo's that has to be cut, for what falls back, is run twice before: to see that, and what its pieces are
  given (the arguments are put back afterwards);
- ``clip_grad_norm_(error_if_nonfinite=True)`` reads whether the norm is NaN, and then whether it is infinite;
- indices are wrapped by operations of the graph, which read the size as a number.

This is the one place that decides. Nothing here is asked on the way of a known operation: a strict handler takes the
place of the ordinary one when an operator is first called.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from .dispatch.parity_ops import IN_PIECES, LOWERED

Handler = Callable[[tuple[Any, ...], dict[str, Any]], Any]

aten = torch.ops.aten

#: is the peer's behaviour asked for? Set by :func:`set_strict`.
strict = os.environ.get("XLAPROF_STRICT_PARITY", "").lower() in ("1", "true", "on", "yes")


def set_strict(on: bool) -> None:
    """Do as PyTorch/XLA does from now on, or no longer.

    In place of ``XLAPROF_STRICT_PARITY=1`` and of ``xlaprof run --strict-parity``.
    """
    global strict
    if on is strict:
        return
    from .execution import upload
    from .execution.program import cache
    from .modes import eager
    from .tape.tapes import existing
    from .trace.tensor import HANDLERS

    strict = on
    numbers_are_constants(on)
    _ask_norms_twice(on)
    eager.HANDLERS.clear()
    HANDLERS.clear()  # each is made again when its operator is next called
    cache.clear()  # programs read numbers in another form
    upload.forget()
    for tape in existing():
        tape.forget()


def numbers_are_constants(on: bool) -> None:
    """Have Dynamo specialise on floats that a program read, or as it does otherwise."""
    global _specialize
    from torch._dynamo import config

    if on and _specialize is None:
        _specialize, config.specialize_float = config.specialize_float, True
    elif not on and _specialize is not None:
        config.specialize_float, _specialize = _specialize, None


_specialize: bool | None = None  # what Dynamo's option was


def _ask_norms_twice(on: bool) -> None:
    """Put PyTorch/XLA's way to clip gradients in the place of PyTorch's, or take it back."""
    chosen = _clip_grad_norm if on else _torchs_clip_grad_norm
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


if strict:  # from the environment
    _ask_norms_twice(True)


def handler(func: torch._ops.OpOverload, ordinary: Callable[[], Handler]) -> Handler:
    """The handler of ``func`` in strict mode; ``ordinary()`` makes the one it has otherwise."""
    name = str(func)
    if name in ("aten.index.Tensor", "aten._unsafe_index.Tensor"):
        return _with_numbers(ordinary())
    if name in _PUTS:
        return _with_numbers(ordinary())
    if name == "aten.embedding_dense_backward.default":
        return _gradient_of_embedding(ordinary())
    return ordinary() if lowered(func) else _on_cpu(func)


def lowered(func: torch._ops.OpOverload) -> bool:
    """Does PyTorch/XLA compute ``func`` on its device, itself or as other operators?"""
    from .trace.ops import functional_twin, is_view

    if func.namespace not in ("aten", "torchvision") or is_view(func) or str(func) in _STRUCTURE:
        return True
    if func._schema.name.split("::")[-1] in IN_PIECES or func._schema.name.startswith("aten::_foreach_"):
        return True
    writes = any(a.alias_info and a.alias_info.is_write for a in func._schema.arguments)
    forms = [func, functional_twin(func)] if writes else [func]
    return any(form is not None and (_name(form) in LOWERED or _composite(form)) for form in forms)


def _name(func: torch._ops.OpOverload) -> str:
    base = func._schema.name.split("::")[-1]
    return f"{base}.{func._schema.overload_name}" if func._schema.overload_name else base


def _composite(func: torch._ops.OpOverload) -> bool:
    """Is it made of other operators for every device?"""
    return any(
        torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)
        for key in ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
    )


_PUTS = frozenset(
    {"aten.index_put.default", "aten._unsafe_index_put.default", "aten.index_put_.default",
     "aten._index_put_impl_.default"}
)  # fmt: skip
#: what makes, moves and shows tensors: no computation
_STRUCTURE = frozenset({"aten.empty_like.default", "aten.new_empty.default", "aten.lift.default", "aten.equal.default"})


def counter(func: torch._ops.OpOverload) -> str:
    """The counter of an operator that runs on the CPU, as PyTorch/XLA names it: ``aten::searchsorted.Tensor``.

    Of a structured operator it is the form that writes to ``out``, to which the functional one comes down.
    """
    packet = getattr(getattr(torch.ops, func.namespace), func._schema.name.split("::")[-1])
    overload = func._schema.overload_name
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeExplicitAutogradNonFunctional"):
        overload = next((o for o in packet.overloads() if o in (f"{overload}_out", "out")), overload)
    return f"{func._schema.name}.{overload}" if overload else str(func._schema.name)


def _on_cpu(func: torch._ops.OpOverload) -> Handler:
    from . import metrics
    from .dispatch import fallback
    from .trace.ops import Op
    from .transfer import host

    op = Op(func)
    tried = f"xla::{op.aten.removeprefix('aten::')}" if str(func) in _TRIED else ""

    def record(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = host.adopt(host.tape_of(args, kwargs), op, args, kwargs)
        if tried:
            metrics.count(tried)
        return fallback.on_cpu(op, args, kwargs)

    return record


#: what PyTorch/XLA counts as its own too: it could compute them, and does not unless asked to
_TRIED = frozenset({"aten.nonzero.default", "aten.masked_select.default"})


def _with_numbers(ordinary: Handler) -> Handler:
    """Indexing with masks replaced by positions, and with indices wrapped, by operations of the graph."""

    def record(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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
    def record(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        grad, indices, length, *rest = args
        return ordinary((grad, _wrap(indices, length), length, *rest), kwargs)

    return record


def _wrap(index: torch.Tensor, length: int) -> torch.Tensor:
    wrapped: torch.Tensor = aten.where.self(aten.lt.Scalar(index, 0), aten.add.Tensor(index, length), index)
    return wrapped
