"""Operations that no lowering covers, computed by the first of :data:`STEPS` that can; the last is the CPU.

The result is right in any case. Only the CPU costs something: the operation is counted as ``aten::op`` and reported
with its line.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any
from weakref import ref

import torch
from torch._decomp import core_aten_decompositions, decomposition_table
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

from xlaprof import events
from xlaprof.recording import recorder, stacks
from xlaprof.runtime import metrics
from xlaprof.runtime.clock import aside
from xlaprof.runtime.instruments import debug
from xlaprof.runtime.shapes.rehearse import accept, is_accepted, refuse, refuse_overlap, rehearse, signature
from xlaprof.runtime.tape import randomness
from xlaprof.runtime.trace.errors import is_final
from xlaprof.runtime.trace.ops import Op
from xlaprof.runtime.trace.tensor import XLATensor
from xlaprof.runtime.transfer import host

from .custom import has_kernel, no_kernel
from .types import Args, Handler, Kwargs

_core = core_aten_decompositions()

#: operators whose decomposition would never end, or does not suit tensors on ``xla``
_NO_DECOMPOSITION = {
    "aten.uniform.default",
    "aten.copy_.default",
    "aten.clone.default",
    "aten._to_copy.default",
    "aten.empty_like.default",
}


def decomposition(op: Op) -> Callable[..., Any] | None:
    """PyTorch's decomposition of ``op`` into other operators, if it has one."""
    if op.name in _NO_DECOMPOSITION:
        return None
    found = _core.get(op.func)
    if found is None and op.func._can_decompose():  # PyTorch does so itself, but in inference mode
        found = op.func.decompose
    return found or decomposition_table.get(op.func)


def compute(op: Op, args: Args, kwargs: Kwargs) -> Any:
    """Compute ``op`` without its lowering, by the first of :data:`STEPS` that can."""
    args, kwargs = host.adopt(host.tape_of(args, kwargs), op, args, kwargs)
    if op.writes:
        refuse_overlap(op, args, kwargs)
    for step in STEPS:
        result = step(op, args, kwargs)
        if result is not NotImplemented:
            return result
    raise AssertionError("the last step computes anything")


def _by_twin(op: Op, args: Args, kwargs: Kwargs) -> Any:
    """An in-place operation as its functional twin and a copy."""
    data_dependent = torch.Tag.dynamic_output_shape in op.func.tags
    if op.writes != (0,) or op.twin is None or type(args[0]) is not XLATensor or data_dependent:
        return NotImplemented
    return args[0].copy_(op.twin(*args, **kwargs))


def _by_decomposition(op: Op, args: Args, kwargs: Kwargs) -> Any:
    """The operations that PyTorch's decomposition of ``op`` calls."""
    decomposed = decomposition(op)
    if decomposed is None:
        return NotImplemented
    try:
        result = decomposed(*args, **kwargs)
    except (NotImplementedError, torch._subclasses.fake_tensor.DataDependentOutputException):
        return NotImplemented
    except Exception as error:
        # The rehearsal raises PyTorch's own error; a call that only the decomposition refuses goes to the next step.
        if is_final(error) or not rehearse(op, args, kwargs):
            raise
        return NotImplemented
    _refuse(op, args, kwargs, result)
    return result


def _refuse(op: Op, args: Args, kwargs: Kwargs, result: Any) -> None:
    """Raise what the CPU raises, once for each signature: what ``op`` is decomposed into may take the call."""
    call = signature(op, args, kwargs)
    if not is_accepted(call):
        made = [x.nbytes for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        refuse(op, args, kwargs, sum(made))
        accept(call)


_SEVERAL_VIEWS = ("aten.unbind.int", "aten.split.Tensor", "aten.split.sizes", "aten.split_with_sizes.default")


def views_by_slices(op: Op) -> Handler:
    """Handler of an operator that returns several views: each is made by the single-view operators."""
    if op.name not in _SEVERAL_VIEWS and op.func._can_decompose():  # chunk, tensor_split... in inference mode
        return lambda args, kwargs: op.func.decompose(*args, **kwargs)

    def record(args: Args, kwargs: Kwargs) -> Any:
        given = dict(zip(op.names, args, strict=False)) | kwargs
        tensor, dim = given["self"], given.get("dim", 0)
        sizes = given.get("split_sizes", given.get("split_size", 0))
        if not -tensor.ndim <= dim < tensor.ndim or min(sizes if isinstance(sizes, (list, tuple)) else [sizes]) < 0:
            rehearse(op, args, kwargs)
        length = tensor.shape[dim]
        if op.name == "aten.unbind.int":
            return _kept([torch.ops.aten.select.int(tensor, dim, i) for i in range(length)])
        if op.name == "aten.split.Tensor":
            if sizes == 0 and length:
                raise RuntimeError(
                    f"split_size can only be 0 if dimension size is 0, but got dimension size of {length}"
                )
            sizes = [min(sizes, length - i) for i in range(0, length, sizes)] if length else [0]
        elif sum(sizes) != length or not sizes:
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {length} "
                f"(input tensor's size at dimension {dim}), but got split_sizes={list(sizes)}"
            )
        ends = list(itertools.accumulate(sizes))
        return _kept([torch.ops.aten.slice.Tensor(tensor, dim, e - n, e) for e, n in zip(ends, sizes, strict=True)])

    return record


def _kept(pieces: list[Any]) -> list[Any]:
    """Let the next barrier compute each of ``pieces``, new views of one tensor, that is alive; return them.

    Other views are derived again where they are used. A piece's start is part of the graph: a loop over the pieces with
    a barrier each would compile a new graph each time. (PyTorch/XLA computes all that is alive.)
    """
    for piece in pieces:
        tape, storage = piece._storage.tape, piece._storage
        with tape.lock:
            if storage.epoch == tape.epoch:
                tape.pieces.append(ref(storage))
    return pieces


def write_to_host(op: Op, args: Args, kwargs: Kwargs) -> Any:
    """An in-place operation on a host tensor with arguments on ``xla``: a read where operands mix, or an error."""
    host.yield_to(args[0])
    if host.mixes(op):
        assert op.twin is not None
        rehearse(op, args, kwargs)  # what may not be written to the target
        return args[0].copy_(op.twin(*args, **kwargs))
    for name, value in (*zip(op.names, args, strict=False), *kwargs.items()):
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if type(item) is XLATensor:
                raise host.misplaced(op, name, args[0].device, item.device)
    raise AssertionError(f"{op.name} was dispatched to xla without a tensor on it")


def on_cpu(op: Op, args: Args, kwargs: Kwargs) -> Any:
    """Run ``op`` on the CPU: its inputs are read (recorded operations stay pending), its results uploaded."""
    start = perf_counter_ns()
    rec = recorder.active
    frames = stacks.user_frames() if rec is not None else ()
    tape = host.tape_of(args, kwargs)
    with aside():
        leaves, spec = tree_flatten((args, kwargs))
        ours = [leaf for leaf in leaves if type(leaf) is XLATensor]
        distinct = list({id(leaf._storage): leaf._storage for leaf in ours}.values())
        copies: dict[int, torch.Tensor] = {}
        if distinct:
            read = host.read(distinct, op.aten, keep_pending=True)
            if op.writes:  # an output may be resized, and memory that was read cannot be
                read = [copy.clone() for copy in read]
            copies = {id(storage): copy for storage, copy in zip(distinct, read, strict=True)}
        on_host = [
            copies[id(leaf._storage)]
            if type(leaf) is XLATensor
            else torch.device("cpu")
            if isinstance(leaf, torch.device)
            else leaf
            for leaf in leaves
        ]
        cpu_args, cpu_kwargs = tree_unflatten(on_host, spec)
        if "generator" in op.names:  # the device's stream, not the host's
            cpu_kwargs["generator"] = randomness.host_generator(tape.index, randomness.generator_of(args, kwargs))
            cpu_args = tuple(a for a in cpu_args if not isinstance(a, torch.Generator))
        try:
            result = op.func(*cpu_args, **cpu_kwargs)
        except NotImplementedError as error:
            if has_kernel(op.func, "CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd"):
                raise
            raise no_kernel(op) from error
        metrics.count(counter(op.func))
        if debug.level:
            debug.fell_back(counter(op.func))
        _write_back(op, args, kwargs, cpu_args, cpu_kwargs)
        aliases = {id(copy): leaf for leaf, copy in zip(leaves, on_host, strict=True) if type(leaf) is XLATensor}
        result = tree_map_only(
            torch.Tensor, lambda t: aliases[id(t)] if id(t) in aliases else host.to_device(tape, t), result
        )
    if rec is not None:
        rec.emit(events.Fallback(start, perf_counter_ns() - start, rec.text(op.aten), rec.stack(frames), rec.thread()))
    return result


def _write_back(op: Op, args: Args, kwargs: Kwargs, cpu_args: Args, cpu_kwargs: Kwargs) -> None:
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


def counter(func: torch._ops.OpOverload) -> str:
    """The counter of an operator that runs on the CPU, as PyTorch/XLA names it: ``aten::searchsorted.Tensor``.

    A structured operator is counted as its out variant, which its functional form calls.
    """
    packet = getattr(getattr(torch.ops, func.namespace), func._schema.name.split("::")[-1])
    overload = func._schema.overload_name
    if has_kernel(func, "CompositeExplicitAutogradNonFunctional"):
        overload = next((o for o in packet.overloads() if o in (f"{overload}_out", "out")), overload)
    return f"{func._schema.name}.{overload}" if overload else str(func._schema.name)


#: tried in this order: each returns the result, or ``NotImplemented``
STEPS = (_by_twin, _by_decomposition, on_cpu)
