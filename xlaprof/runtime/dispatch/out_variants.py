"""``out=`` overloads: computed by the functional twin, then written into the tensors given.

PyTorch's rules for those tensors hold: the result can be cast to their dtype, they are on the device of the inputs and
share no memory with them; a tensor of another shape is resized, with a warning unless it was empty.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from xlaprof.recording import stacks
from xlaprof.runtime.shapes.checks import cpp_name
from xlaprof.runtime.shapes.rehearse import accept, is_accepted, rehearse, signature
from xlaprof.runtime.trace.errors import is_final
from xlaprof.runtime.trace.ops import Op
from xlaprof.runtime.trace.storage import View, base_of
from xlaprof.runtime.trace.tensor import XLATensor
from xlaprof.runtime.transfer import host

from . import fallback
from .types import Args, Handler, Kwargs


def out(op: Op) -> Handler:
    """Handler of an ``out=`` overload."""
    names = [op.func._schema.arguments[i].name for i in op.writes]
    # torch.arange(..., out=x): the dtype and device are those of x
    creates = op.twin is not None and {"dtype", "device"} <= {a.name for a in op.twin._schema.arguments}

    def record(args: Args, kwargs: Kwargs) -> Any:
        tape = host.tape_of(args, kwargs)
        given = [name for name in names if name in kwargs]
        targets = tree_leaves([kwargs[name] for name in given])
        for target in targets:
            if type(target) is not XLATensor or target._storage.tape is not tape:
                raise host.misplaced(op, names[0], tape.torch_device, target.device)
        args, kwargs = host.adopt(tape, op, args, kwargs)
        if op.twin is None or given != names:
            return fallback.on_cpu(op, args, kwargs)
        options = {k: v for k, v in kwargs.items() if k not in names}
        if creates:
            options |= {"dtype": targets[0].dtype, "device": tape.torch_device}
        try:
            found = op.twin(*args, **options)
        except Exception as error:  # which may refuse what is taken with these outputs
            if is_final(error) or not rehearse(op, args, kwargs):
                raise
            return fallback.on_cpu(op, args, kwargs)
        results = list(found) if isinstance(found, (tuple, list)) else [found]
        inputs = [t for t in tree_leaves((args, options)) if type(t) is XLATensor]
        if _unusual(targets, results, inputs):
            _rehearse(op, args, kwargs, targets, results)
        written = write_out(targets, results)
        return written if op.func._schema.returns else None

    return record


def write_out(targets: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> Any:
    """Write ``results`` into ``targets``, resized where needed; return those: one by itself, several as a tuple."""
    for target, result in zip(targets, results, strict=True):
        if target.shape != result.shape:
            _resize(target, result.shape)
        target.copy_(result)
    return targets[0] if len(targets) == 1 else tuple(targets)


def _unusual(targets: list[Any], results: list[Any], inputs: list[Any]) -> bool:
    """Is there a tensor of another dtype or with elements to lose, or one that shares memory with another?"""
    bases = {id(base_of(t._storage)) for t in inputs}
    return (
        any(t.dtype is not r.dtype or (t.numel() and t.shape != r.shape) for t, r in zip(targets, results, strict=True))
        or any(id(base_of(t._storage)) in bases or isinstance(t._storage, View) for t in targets)
        or len({id(base_of(t._storage)) for t in targets}) < len(targets)
    )


def _rehearse(op: Op, args: Args, kwargs: Kwargs, targets: list[Any], results: list[Any]) -> None:
    """Raise what the CPU raises for these outputs."""
    call = signature(op, args, kwargs)
    if is_accepted(call):
        return
    if not rehearse(op, args, kwargs):
        for target, result in zip(targets, results, strict=True):
            if not torch.can_cast(result.dtype, target.dtype):
                raise RuntimeError(
                    f"result type {cpp_name(result.dtype)} can't be cast to the desired output "
                    f"type {cpp_name(target.dtype)}"
                )
    accept(call)


def _resize(target: torch.Tensor, shape: torch.Size) -> None:
    if target.numel():
        message = (
            f"An output with one or more elements was resized since it had shape {list(target.shape)}, which does not "
            f"match the required output shape {list(shape)}. This behavior is deprecated, and in a future PyTorch "
            "release outputs will not be resized unless they have zero elements. You can explicitly reuse an out "
            "tensor t by resizing it, inplace, to zero elements with t.resize_(0)."
        )
        at = stacks.user_frames(1)[0]
        warnings.warn_explicit(message, UserWarning, at.file, at.line)
    target.resize_(shape)
