"""Collectives over the ranks, under PyTorch/XLA's names (``torch_xla.core.xla_model``).

They are recorded like any operation, and run inside the compiled program of their graph, which is one program of all
ranks: every rank has to record the same ones, in the same order. In a world of one they change nothing;
with ``XLA_ALWAYS_ALLREDUCE=1`` those that reduce, gather or broadcast are recorded even there.

``groups`` is a list of lists of ranks, ``[[0, 1], [2, 3]]``: each list exchanges among its own ranks. ``None`` is one
group of all ranks. ``pin_layout`` has no meaning here: arrays have one layout. ``torch_xla.core.functions`` has
differentiable collectives.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from xlaprof.runtime.dynamo.constants import in_graph
from xlaprof.runtime.modes import barriers

from . import functional
from . import groups as _groups
from .job import world
from .programs import operators

REDUCE_SUM = "sum"
REDUCE_MUL = "mul"
REDUCE_AND = "and"
REDUCE_OR = "or"
REDUCE_MIN = "min"
REDUCE_MAX = "max"

_REDUCTIONS = (REDUCE_SUM, REDUCE_MUL, REDUCE_AND, REDUCE_OR, REDUCE_MIN, REDUCE_MAX)
Groups = Sequence[Sequence[int]] | None
Tensors = torch.Tensor | list[torch.Tensor]


def all_reduce(
    reduce_type: str, inputs: Any, scale: float = 1.0, groups: Groups = None, pin_layout: bool = True, cctx: Any = None
) -> Any:
    """Reduce over the ranks, elementwise, then multiply by ``scale``.

    For one tensor, returns a new one. For a list or tuple, writes the results to its tensors and returns it.
    ``reduce_type`` is ``"sum"``, ``"mul"``, ``"and"``, ``"or"``, ``"min"`` or ``"max"``.
    """
    named = _groups.normalized(groups)
    _require_reduction(reduce_type)
    one = isinstance(inputs, torch.Tensor)
    if world.world_size() == 1 and not _always():
        return inputs.clone() if one else inputs
    if one and scale == 1.0 and not named and pin_layout:
        return torch.ops._c10d_functional.all_reduce(inputs, reduce_type, "")
    text = _groups.to_text(named)
    if one:
        operators.count_call("AllReduce", [inputs])
        return torch.ops.xla.all_reduce([inputs], reduce_type, float(scale), text)[0]
    operators.count_call("AllReduceInPlace", inputs)
    with torch.no_grad():
        torch.ops.xla.all_reduce_(list(inputs), reduce_type, float(scale), text)
    return inputs


def all_gather(
    value: Any,
    dim: int = 0,
    groups: Groups = None,
    output: Any = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> Any:
    """The values of all ranks, in their order, joined along ``dim``; written to ``output`` if there is one.

    ``value`` is a tensor or, with ``pin_layout=False``, a list of tensors; then a list is returned. ``channel_id`` and
    ``use_global_device_ids`` have no effect.
    """
    named = _groups.normalized(groups)
    shards = _groups.shards(named)
    one = isinstance(value, torch.Tensor)
    values, outputs = _lists(value, output, "value")
    if pin_layout and not one:
        raise RuntimeError("For xm.all_gather with list of tensors input, pin_layout=True is not yet supported.")
    _count("AllGather", one, output, values)
    dims = {_dim(dim, tensor) for tensor in values}
    assert len(dims) == 1, "tensors that are gathered together have to have the same number of dimensions"
    results = values
    if shards > 1 or _always():
        results = torch.ops.xla.all_gather(values, dims.pop(), shards, _groups.to_text(named))
    elif outputs is None:
        results = [tensor.clone() for tensor in values]
    results = _to(outputs, results)
    return results[0] if one else results


def reduce_scatter(
    reduce_type: str,
    input: Any,
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Groups = None,
    output: Any = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> Any:
    """As :func:`all_reduce`, but each rank gets its part along ``scatter_dim``; written to ``output`` if given.

    ``input`` is a tensor or a list of tensors; ``shard_count`` is the number of ranks of a group. ``channel_id`` and
    ``use_global_device_ids`` have no effect.
    """
    named = _groups.normalized(groups)
    _require_reduction(reduce_type)
    _require_shards(shard_count, named, "shard_count")
    one = isinstance(input, torch.Tensor)
    values, outputs = _lists(input, output, "input")
    _count("ReduceScatter", one, output, values)
    dim = _dim(scatter_dim, values[0])
    for value in values:
        _require_parts("reduce_scatter", value, dim, shard_count)
    if shard_count > 1 or _always():
        results = torch.ops.xla.reduce_scatter(
            values, reduce_type, float(scale), dim, shard_count, _groups.to_text(named)
        )
    else:
        results = [value * scale if scale != 1.0 else value.clone() for value in values]
    results = _to(outputs, results)
    return results[0] if one else results


def all_to_all(
    value: torch.Tensor,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    groups: Groups = None,
    pin_layout: bool = True,
) -> torch.Tensor:
    """Split ``value`` along ``split_dimension``, send the i-th part to the i-th rank, and join the parts received.

    ``split_count`` is the number of ranks of a group.
    """
    named = _groups.normalized(groups)
    _require_shards(split_count, named, "split_count")
    operators.count_call("AllToAll", [value])
    split, concat = _dim(split_dimension, value), _dim(concat_dimension, value)
    _require_parts("all_to_all", value, split, split_count)
    if split_count == 1:
        return value.clone()
    exchanged: torch.Tensor = torch.ops.xla.all_to_all(value, split, concat, split_count, _groups.to_text(named))
    return exchanged


def collective_permute(value: Any, pairs: Sequence[Sequence[int]]) -> Any:
    """Send the value of the first rank of each of ``pairs`` to the second; a rank that receives nothing gets zeros.

    ``value`` is a tensor or a list of them.
    """
    size = world.world_size()
    named = [(int(a), int(b)) for a, b in pairs]
    for side, ranks in (("source", [a for a, _ in named]), ("target", [b for _, b in named])):
        wrong = [rank for rank in ranks if not 0 <= rank < size or ranks.count(rank) > 1]
        if wrong:
            raise ValueError(
                f"pairs={[list(p) for p in named]}: {wrong[0]} is no {side}, of ranks 0 to {size - 1}, or twice"
            )
    values = [value] if isinstance(value, torch.Tensor) else list(value)
    operators.count_call("CollectivePermute", values)
    results = torch.ops.xla.collective_permute(values, _groups.to_text(tuple(named)), "")
    return results[0] if isinstance(value, torch.Tensor) else results


def collective_broadcast(
    tensors: Sequence[torch.Tensor], root_ordinal: int = 0, groups: Groups = None, pin_layout: bool = True
) -> None:
    """Write rank ``root_ordinal``'s values of ``tensors`` to those of all ranks, in place."""
    named = _groups.normalized(groups)
    if not 0 <= root_ordinal < world.world_size():
        raise ValueError(f"root_ordinal={root_ordinal} is no rank of a world of {world.world_size()}")
    if world.world_size() == 1 and not _always():
        return
    operators.count_call("AllReduceInPlace", tensors)
    with torch.no_grad():
        torch.ops.xla.broadcast_(list(tensors), root_ordinal, _groups.to_text(named))


def broadcast_master_param(model: torch.nn.Module) -> None:
    """Give all ranks rank 0's parameters and buffers, and cut the graph."""
    collective_broadcast(list(itertools.chain(model.parameters(), model.buffers())))
    barriers.sync()


def send(value: torch.Tensor, channel_id: int) -> torch.Tensor:
    """XLA's ``Send``, which the CPU and PyTorch/XLA's CPU do not have. Raises ``NotImplementedError``."""
    raise NotImplementedError("xm.send: use torch.distributed.send(tensor, dst), or collective_permute(value, pairs)")


def recv(output: torch.Tensor, channel_id: int) -> torch.Tensor:
    """XLA's ``Recv``, which the CPU and PyTorch/XLA's CPU do not have. Raises ``NotImplementedError``."""
    raise NotImplementedError("xm.recv: use torch.distributed.recv(tensor, src), or collective_permute(value, pairs)")


# -- in buckets ---------------------------------------------------------------------------------------


def buckets(tensors: Iterable[torch.Tensor], cap_mb: float, *, loose: bool = False) -> list[list[int]]:
    """Positions of ``tensors`` in buckets of at most ``cap_mb`` MiB; a larger tensor gets a bucket of its own.

    ``loose``: a larger tensor joins a bucket that is less than half full, up to twice the cap.
    """
    cap = cap_mb * 1024 * 1024
    full: list[list[int]] = [[]]
    total = 0
    for i, tensor in enumerate(tensors):
        size = tensor.numel() * tensor.element_size()
        if loose and size > cap and total < 0.5 * cap and total + size <= 2 * cap:
            full[-1].append(i)
            full.append([])
            total = 0
            continue
        if total + size > cap and full[-1]:
            full.append([])
            total = 0
        full[-1].append(i)
        total += size
    return [bucket for bucket in full if bucket]


def all_gather_bucketized(
    input_list: list[torch.Tensor],
    dim: int = 0,
    groups: Groups = None,
    output: list[torch.Tensor] | None = None,
    pin_layout: bool = False,
    bucket_cap_mb: int = 160,
) -> list[torch.Tensor]:
    """:func:`all_gather` of a list, in exchanges of at most ``bucket_cap_mb`` MiB."""
    if pin_layout:
        raise RuntimeError("For xm.all_gather_bucketized, pin_layout=True is not yet supported.")
    return CoalescingBuckets(
        lambda some, outs: all_gather(some, dim, groups, outs, pin_layout=False), input_list, output, bucket_cap_mb
    )()


def reduce_scatter_bucketized(
    reduce_type: str,
    input_list: list[torch.Tensor],
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Groups = None,
    output: list[torch.Tensor] | None = None,
    pin_layout: bool = False,
    bucket_cap_mb: int = 160,
) -> list[torch.Tensor]:
    """:func:`reduce_scatter` of a list, in exchanges of at most ``bucket_cap_mb`` MiB."""
    return CoalescingBuckets(
        lambda some, outs: reduce_scatter(reduce_type, some, scale, scatter_dim, shard_count, groups, outs, pin_layout),
        input_list,
        output,
        bucket_cap_mb,
    )()


class CoalescingBuckets:
    """Calls ``func(inputs, outputs)`` for each bucket of ``input_list`` and, if given, of ``output_list``.

    A bucket of one tensor is passed as the tensor, others as lists.
    """

    def __init__(
        self,
        func: Callable[[Any, Any], Any],
        input_list: list[torch.Tensor],
        output_list: list[torch.Tensor] | None = None,
        bucket_cap_mb: float = 160,
    ) -> None:
        _require_tensors(input_list, "input_list")
        if output_list is not None:
            _require_outputs(output_list, input_list, "output_list", "input_list")
        self._func = func
        self._inputs = input_list
        self._outputs = output_list
        self._cap = bucket_cap_mb

    def __call__(self) -> list[torch.Tensor]:
        results: list[torch.Tensor] = []
        for bucket in buckets(self._inputs, self._cap, loose=True):
            some = [self._inputs[i] for i in bucket]
            into = None if self._outputs is None else [self._outputs[i] for i in bucket]
            if len(bucket) == 1:
                results.append(self._func(some[0], into and into[0]))
            else:
                results.extend(self._func(some, into))
        return results


# -- gradients ----------------------------------------------------------------------------------------


def all_reduce_bucketized_gradients(
    gradients: Iterable[torch.Tensor], scale: float, groups: Groups, pin_layout: bool, bucket_cap_mb: float = 0
) -> None:
    """Sum ``gradients`` over the ranks, in place, in exchanges of at most ``bucket_cap_mb`` MiB."""
    every = list(gradients)
    for bucket in buckets(every, bucket_cap_mb):
        all_reduce(REDUCE_SUM, [every[i] for i in bucket], scale=scale, groups=groups, pin_layout=pin_layout)


def reduce_gradients(optimizer: torch.optim.Optimizer, groups: Groups = None, pin_layout: bool = True) -> None:
    """Average the gradients of ``optimizer``'s parameters over the ranks, in place.

    ``ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB`` bounds the size of an exchange, starting with the last parameters.
    """
    count = world.world_size()
    if count == 1:
        return
    gradients = [
        parameter.grad
        for group in optimizer.param_groups
        for parameter in group["params"]
        if isinstance(parameter, torch.Tensor) and parameter.grad is not None
    ]
    cap = int(os.environ.get("ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB", "0"))
    if cap > 0:
        all_reduce_bucketized_gradients(reversed(gradients), 1.0 / count, groups, pin_layout, cap)
    else:
        all_reduce(REDUCE_SUM, gradients, scale=1.0 / count, groups=groups, pin_layout=pin_layout)


# -- arguments ----------------------------------------------------------------------------------------


def _always() -> bool:
    return os.environ.get("XLA_ALWAYS_ALLREDUCE", "0").lower() in ("1", "true", "yes", "on")


def padded(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """``tensor`` with zeros after its first dimension, whose size is then a multiple of ``count``."""
    if tensor.ndim == 0:
        tensor = tensor.reshape(1)
    missing = -tensor.shape[0] % count
    return F.pad(tensor, [0, 0] * (tensor.ndim - 1) + [0, missing]) if missing else tensor


def _to(outputs: list[torch.Tensor] | None, results: list[torch.Tensor]) -> list[torch.Tensor]:
    if outputs is None:
        return results
    with torch.no_grad():
        for output, result in zip(outputs, results, strict=True):
            if output.shape != result.shape:  # as PyTorch/XLA does
                output.resize_(result.shape)
            output.copy_(result)
    return outputs


def _dim(dim: int, tensor: torch.Tensor) -> int:
    if not -tensor.dim() <= dim < tensor.dim():
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-tensor.dim()}, {tensor.dim() - 1}], but got {dim})"
        )
    return dim % tensor.dim()


def _require_reduction(kind: str) -> None:
    if kind not in _REDUCTIONS:
        raise ValueError(f"reduce_type={kind!r} is none of {', '.join(_REDUCTIONS)}")


def _require_shards(count: int, named: _groups.Groups, name: str) -> None:
    if count != _groups.shards(named):
        raise ValueError(f"{name}={count}, but {_groups.shards(named)} ranks take part: give their number")


def _require_parts(name: str, value: torch.Tensor, dim: int, count: int) -> None:
    if value.shape[dim] % count:
        raise RuntimeError(
            f"{name}: dimension {dim} of a tensor of shape {list(value.shape)} cannot be split into {count} equal parts"
        )


def _count(name: str, one: bool, output: Any, values: list[torch.Tensor]) -> None:
    """Count a call by PyTorch/XLA's name: ``AllGather``, ``AllGatherOut``, ``AllGatherCoalescedOut``..."""
    operators.count_call(f"{name}{'' if one else 'Coalesced'}{'' if output is None else 'Out'}", values)


def _lists(value: Any, output: Any, name: str) -> tuple[list[torch.Tensor], list[torch.Tensor] | None]:
    """``value`` and ``output``, each a tensor or a list of tensors, as lists. Raises ``TypeError``, ``ValueError``."""
    if isinstance(value, torch.Tensor):
        return [value], None if output is None else [output]
    _require_tensors(value, name, "a Tensor or a list of Tensors")
    if output is not None:
        _require_outputs(output, value)
    return list(value), output


def _require_tensors(value: Any, name: str, expected: str = "a list of Tensors") -> None:
    if not isinstance(value, list) or not all(isinstance(v, torch.Tensor) for v in value):
        raise TypeError(f"`{name}` needs to be {expected}, but given {type(value)}.")


def _require_outputs(output: Any, value: list[torch.Tensor], name: str = "output", beside: str = "input") -> None:
    _require_tensors(output, name)
    if len(output) != len(value):
        raise ValueError(f"`{name}` length doesn't match `{beside}` length: {len(output)} vs {len(value)}.")


assert functional  # imported for its operators

for _function in (all_gather, all_reduce, all_to_all, collective_permute, reduce_scatter):
    in_graph(_function)
