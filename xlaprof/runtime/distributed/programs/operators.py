"""The collectives as operators: ``torch.ops.xla.all_reduce`` and its like, recorded on the tape as any operation is.

As PyTorch operators they can be traced by ``torch.compile``, and run in eager mode. :mod:`.lowering` has their
lowerings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from xlaprof.runtime import metrics
from xlaprof.runtime.dispatch.handlers import SPECIAL
from xlaprof.runtime.tape.grow import grow
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.errors import final
from xlaprof.runtime.trace.storage import Sig, sig
from xlaprof.runtime.trace.tensor import dress
from xlaprof.runtime.trace.trie import Node, Ref, Spec

from . import lowering

library = torch.library.Library("xla", "FRAGMENT")


class Collective:
    """A collective as the tape records it."""

    collective = True  # its program is one of all ranks together
    random = False
    writes = ()
    twin = None

    def __init__(self, name: str, func: Any, names: tuple[str, ...]) -> None:
        self.name = f"xla.{name}"
        self.aten = f"xla::{name}"
        self.func = func
        self.names = names
        self.lowering: Callable[..., Any] = getattr(lowering, name)

    def __repr__(self) -> str:
        return self.name


#: shapes of the results, by those of the inputs and the operator's other arguments
Shape = Callable[..., Sequence[Sig]]
_COLLECTIVES: dict[str, tuple[Collective, Shape]] = {}


def _define(schema: str, *, writes: bool = False) -> Callable[[Shape], Shape]:
    """Define ``xla::name`` with the decorated shape function; with ``writes`` also ``name_``, which works in place."""

    def register(shape: Shape) -> Shape:
        name = schema.split("(")[0]
        library.define(schema)
        func = getattr(torch.ops.xla, name).default
        collective = Collective(name, func, tuple(argument.name for argument in func._schema.arguments))
        _COLLECTIVES[name] = (collective, shape)

        def meta(inputs: Any, *rest: Any) -> Any:
            tensors = [inputs] if isinstance(inputs, torch.Tensor) else inputs
            results = [tensors[0].new_empty(s.shape, dtype=s.dtype) for s in shape([_sig(t) for t in tensors], *rest)]
            return results[0] if isinstance(inputs, torch.Tensor) else results

        library.impl(name, meta, "Meta")
        SPECIAL[str(func)] = lambda args, kwargs: functional(name, *_positional(func, args, kwargs))
        if writes:
            twin = schema.replace(name, name + "_", 1).replace("Tensor[] inputs", "Tensor(a!)[] inputs")
            library.define(twin[: twin.index("->")] + "-> ()")
            func_ = getattr(torch.ops.xla, name + "_").default
            library.impl(name + "_", lambda *_: None, "Meta")
            SPECIAL[str(func_)] = lambda args, kwargs: in_place(name, *_positional(func_, args, kwargs))
        return shape

    return register


@_define("all_reduce(Tensor[] inputs, str reduce_type, float scale, str groups) -> Tensor[]", writes=True)
@_define("broadcast(Tensor[] inputs, int root, str groups) -> Tensor[]", writes=True)
@_define("collective_permute(Tensor[] inputs, str pairs, str groups) -> Tensor[]")
def _unchanged(inputs: Sequence[Sig], *_: Any) -> Sequence[Sig]:
    return inputs


@_define("all_gather(Tensor[] inputs, int dim, int shards, str groups) -> Tensor[]")
def _gathered(inputs: Sequence[Sig], dim: int, shards: int, *_: Any) -> Sequence[Sig]:
    return [_resized(s, dim, s.shape[dim] * shards) for s in inputs]


@_define("reduce_scatter(Tensor[] inputs, str reduce_type, float scale, int dim, int shards, str groups) -> Tensor[]")
def _scattered(inputs: Sequence[Sig], reduce_type: str, scale: float, dim: int, shards: int, *_: Any) -> Sequence[Sig]:
    return [_resized(s, dim, s.shape[dim] // shards) for s in inputs]


@_define("all_to_all(Tensor input, int split_dim, int concat_dim, int shards, str groups) -> Tensor")
def _exchanged(inputs: Sequence[Sig], split_dim: int, concat_dim: int, shards: int, *_: Any) -> Sequence[Sig]:
    (one,) = inputs
    split = _resized(one, split_dim, one.shape[split_dim] // shards)
    return [_resized(split, concat_dim, split.shape[concat_dim] * shards)]


def _sig(tensor: torch.Tensor) -> Sig:
    return sig(tuple(tensor.shape), tensor.dtype)


def _resized(one: Sig, dim: int, size: int) -> Sig:
    return sig((*one.shape[:dim], size, *one.shape[dim + 1 :]), one.dtype)


def _positional(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    return (*args, *(kwargs[a.name] for a in func._schema.arguments[len(args) :]))


# -- recording ----------------------------------------------------------------------------------------


def functional(name: str, inputs: Any, *rest: Any) -> Any:
    one = isinstance(inputs, torch.Tensor)
    tensors = [inputs] if one else list(inputs)
    if not tensors:
        return []
    tape = _tape(tensors)
    with tape.lock:
        node = _record(tape, name, tensors, rest)
        results = [dress(out, tape.output(out.slot, out.sig)) for out in node.outs]
    return results[0] if one else results


def in_place(name: str, tensors: Sequence[torch.Tensor], *rest: Any) -> None:
    """Write the collective's results to its inputs, below autograd."""
    if not tensors:
        return
    tape = _tape(tensors)
    with tape.lock:
        node = _record(tape, name, tensors, rest)
        for tensor, out in zip(tensors, node.outs, strict=True):
            tape.write(tensor._storage, out.slot)  # type: ignore[attr-defined]


def _record(tape: Tape, name: str, tensors: Sequence[Any], rest: tuple[Any, ...]) -> Node:
    """Follow, or grow, the edge of a collective; the tape then stands on the node returned."""
    collective, shape = _COLLECTIVES[name]
    slots = tuple(tape.slot_of(tensor._storage) for tensor in tensors)
    key = (collective, slots, *rest)
    node = tape.node.edges.get(key)
    if node is None:
        specs = [Spec(s) for s in shape([tensor._storage.sig for tensor in tensors], *rest)]
        node = grow(tape, collective, key, (tuple(map(Ref, slots)), *rest), {}, specs)  # type: ignore[arg-type]
    tape.node = node
    return node


def _tape(tensors: Sequence[torch.Tensor]) -> Tape:
    require_on_device(tensors)
    return tensors[0]._storage.tape  # type: ignore[attr-defined,no-any-return]


def require_on_device(tensors: Iterable[torch.Tensor]) -> None:
    """Raise ``RuntimeError`` for a tensor that is not on ``xla``."""
    for tensor in tensors:
        if tensor.device.type != "xla":
            raise final(RuntimeError(f"Input tensor is not an XLA tensor: {tensor.type()}; move it with .to('xla')"))


def count_call(name: str, tensors: Iterable[torch.Tensor]) -> None:
    """Count a call with tensors on the device by PyTorch/XLA's name, ``xla::AllReduce``...

    Raises ``RuntimeError`` for a tensor that is not on ``xla``.
    """
    require_on_device(tensors)
    metrics.count(f"xla::{name}")
