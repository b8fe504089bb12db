"""Roads an operation takes when no lowering covers it: its functional twin, a decomposition, and last the CPU.

Whatever happens, the result is right; only an operation that reaches the CPU costs something, is counted as
``aten::op`` and told with its line.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from xlaprof import events, recorder, stacks

from . import host, metrics
from .clock import aside
from .grow import Unlowered
from .ops import Op
from .tensor import XLATensor

Handler = Callable[[tuple[Any, ...], dict[str, Any]], Any]

_core = core_aten_decompositions()

#: decompositions that would never end, or that are written for other tensors than ours
_NO_DECOMPOSITION = {"aten.copy_.default", "aten.clone.default", "aten._to_copy.default", "aten.empty_like.default"}


def decomposition(op: Op) -> Callable[..., Any] | None:
    """PyTorch's decomposition of ``op`` into other operators, if it has one."""
    if op.name in _NO_DECOMPOSITION:
        return None
    found = _core.get(op.func) or decomposition_table.get(op.func)
    if found is None and op.func._can_decompose():
        found = op.func.decompose
    return found


def road(op: Op) -> Handler:
    """Handler of an operator without a lowering."""

    def record(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return other_road(op, args, kwargs, Unlowered(f"{op.name} has no lowering"))

    return record


def other_road(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], why: Unlowered) -> Any:
    """Compute ``op`` without its lowering (``why`` it does not do)."""
    if op.writes == (0,) and op.twin is not None and type(args[0]) is XLATensor and not _data_dependent(op):
        return _through_twin(op, args, kwargs)
    decomposed = decomposition(op)
    if decomposed is not None:
        try:
            result = decomposed(*args, **kwargs)
        except (NotImplementedError, torch._subclasses.fake_tensor.DataDependentOutputException):
            result = NotImplemented
        if result is not NotImplemented:
            return result
    return on_cpu(op, args, kwargs)


def _data_dependent(op: Op) -> bool:
    return torch.Tag.dynamic_output_shape in op.func.tags


def _through_twin(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An in-place operation as its functional twin and a copy."""
    assert op.twin is not None
    result = op.twin(*args, **kwargs)
    args[0].copy_(result)
    return args[0]


def out(op: Op) -> Handler:
    """Handler of an ``out=`` overload: computed by the functional twin, then copied into the tensors given."""
    names = [op.func._schema.arguments[i].name for i in op.writes]

    def record(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        targets = [kwargs[name] for name in names if name in kwargs]
        if op.twin is None or len(targets) != len(names):
            return on_cpu(op, args, kwargs)
        results = op.twin(*args, **{k: v for k, v in kwargs.items() if k not in names})
        for target, result in zip(targets, results if isinstance(results, (tuple, list)) else [results], strict=True):
            if not torch.can_cast(result.dtype, target.dtype):
                raise RuntimeError(
                    f"result type {result.dtype} can't be cast to the desired output type {target.dtype}"
                )
            if target.shape != result.shape:
                target.resize_(result.shape)
            target.copy_(result)
        return targets[0] if len(targets) == 1 else tuple(targets)

    return record


def views_by_slices(op: Op) -> Handler:
    """Handler of an operator that returns several views: each is made by the single-view operators."""

    def record(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = dict(zip(op.names, args, strict=False)) | kwargs
        tensor, dim = given["self"], given.get("dim", 0)
        if op.name == "aten.unbind.int":
            return [torch.ops.aten.select.int(tensor, dim, i) for i in range(tensor.shape[dim])]
        length = tensor.shape[dim]
        if op.name == "aten.split.Tensor":
            size = given["split_size"]
            if size == 0 and length:
                raise RuntimeError(
                    f"split_size can only be 0 if dimension size is 0, but got dimension size of {length}"
                )
            sizes = [min(size, length - i) for i in range(0, length, size)] if length else [0]
        else:
            sizes = list(given.get("split_sizes", given.get("split_size", ())))
            if sum(sizes) != length or not sizes:
                raise RuntimeError(
                    f"split_with_sizes expects split_sizes to sum exactly to {length} "
                    f"(input tensor's size at dimension {dim}), but got split_sizes={sizes}"
                )
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        return [torch.ops.aten.slice.Tensor(tensor, dim, s, s + n) for s, n in zip(starts, sizes, strict=True)]

    return record


def write_to_host(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An in-place operation on a host tensor with arguments on ``xla``: PyTorch's error, or for ``copy_`` a read."""
    raise RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, cpu and xla! "
        f"(when checking arguments of {op.aten})"
    )


def on_cpu(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run ``op`` on the CPU: its inputs are read (what was recorded stays pending), its results uploaded."""
    start = perf_counter_ns()
    rec = recorder.active
    frames = stacks.user_frames() if rec is not None else ()
    tape = host.tape_of(args, kwargs)
    with aside():
        leaves, spec = tree_flatten((args, kwargs))
        ours = [leaf for leaf in leaves if type(leaf) is XLATensor]
        distinct = list({id(leaf._cell): leaf._cell for leaf in ours}.values())
        copies: dict[int, torch.Tensor] = {}
        if distinct:
            read = host.read(distinct, op.aten, keep_pending=True)
            copies = {id(cell): copy for cell, copy in zip(distinct, read, strict=True)}
        on_host = [
            copies[id(leaf._cell)]
            if type(leaf) is XLATensor
            else torch.device("cpu")
            if isinstance(leaf, torch.device)
            else leaf
            for leaf in leaves
        ]
        cpu_args, cpu_kwargs = tree_unflatten(on_host, spec)
        try:
            result = op.func(*cpu_args, **cpu_kwargs)
        finally:
            metrics.count(op.aten)
        _write_back(op, args, kwargs, cpu_args, cpu_kwargs)
        aliases = {id(copy): leaf for leaf, copy in zip(leaves, on_host, strict=True) if type(leaf) is XLATensor}
        result = tree_map_only(torch.Tensor, lambda t: aliases.get(id(t)) or host.to_device(tape, t), result)
    if rec is not None:
        rec.emit(events.Fallback(start, perf_counter_ns() - start, rec.text(op.aten), rec.stack(frames), rec.thread()))
    return result


def _write_back(
    op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], cpu_args: tuple[Any, ...], cpu_kwargs: dict[str, Any]
) -> None:
    """Bring what the CPU wrote in place back to the device."""
    for i in op.writes:
        name = op.func._schema.arguments[i].name
        target: Any
        value: Any
        target, value = (args[i], cpu_args[i]) if i < len(args) else (kwargs.get(name), cpu_kwargs.get(name))
        pairs = zip(target, value, strict=True) if isinstance(target, (list, tuple)) else [(target, value)]
        for there, here in pairs:
            if type(there) is XLATensor:
                if there.shape != here.shape:
                    there.resize_(here.shape)
                there.copy_(here)
