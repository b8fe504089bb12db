"""PyTorch's functional collectives, ``torch.ops._c10d_functional``: what ``torch.compile`` sees of torch.distributed.

Importing this module makes them work on ``xla``. A group is given by name or as the process group; ``""`` and
``"default"`` mean all ranks, as in PyTorch/XLA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from xlaprof.runtime.dispatch.handlers import special

from . import groups
from .job import world
from .programs import operators

#: kinds of reduction in torch.distributed's words and in PyTorch/XLA's
KINDS = {"product": "mul", "band": "and", "bor": "or", "avg": "sum"}

xla = torch.ops.xla
_c10d: Any = dist.distributed_c10d


def of_group(group: Any) -> groups.Groups:
    """The ranks of a process group, given by itself or by its name."""
    if isinstance(group, str):
        if group in ("", "default"):
            return ()
        group = _c10d._resolve_process_group(group)
    mesh = getattr(group, "_mesh", None)
    return groups.normalized([dist.get_process_group_ranks(group)] if mesh is None else mesh)


def reduction(op: str, named: groups.Groups) -> tuple[str, float]:
    """PyTorch/XLA's kind of reduction, and the scale, of torch.distributed's ``op``."""
    kind = KINDS.get(op, op)
    if kind not in ("sum", "mul", "and", "or", "min", "max"):
        raise NotImplementedError(f"reduce op {op}")
    return kind, 1.0 / groups.shards(named) if op == "avg" else 1.0


def _all_reduce(inputs: Sequence[torch.Tensor], op: str, group: Any, *, in_place: bool = False) -> Any:
    operators.count_call("all_reduce", inputs)
    named = of_group(group)
    kind, scale = reduction(op, named)
    run = operators.in_place if in_place else operators.functional
    return run("all_reduce", list(inputs), kind, scale, groups.to_text(named))


def _register(name: str, collective: Callable[..., Any]) -> None:
    """Register ``collective(tensors, *arguments)`` as ``name``, of one tensor, and ``name_coalesced``, of several."""
    special(f"_c10d_functional.{name}.default")(lambda args, kwargs: collective([args[0]], *args[1:])[0])
    special(f"_c10d_functional.{name}_coalesced.default")(lambda args, kwargs: collective(*args))


_register("all_reduce", _all_reduce)


@special("_c10d_functional.all_reduce_.default")
def all_reduce_(args: Any, kwargs: Any) -> Any:
    _all_reduce([args[0]], *args[1:], in_place=True)
    return args[0]


@special("_c10d_functional.all_reduce_coalesced_.default")
def all_reduce_coalesced_(args: Any, kwargs: Any) -> Any:
    _all_reduce(*args, in_place=True)
    return args[0]


def _all_gather(inputs: Sequence[torch.Tensor], size: int, group: Any) -> Any:
    operators.count_call("all_gather_into_tensor", inputs)
    named = of_group(group)
    flat = [x.reshape(1) if x.ndim == 0 else x for x in inputs]
    if groups.shards(named) == 1:
        return [x.clone() for x in flat]
    return operators.functional("all_gather", flat, 0, groups.shards(named), groups.to_text(named))


_register("all_gather_into_tensor", _all_gather)


@special("_c10d_functional.all_gather_into_tensor_out.default")
def all_gather_into_tensor_out(args: Any, kwargs: Any) -> Any:
    x, size, group = args
    return kwargs["out"].copy_(_all_gather([x], size, group)[0])


def _reduce_scatter(inputs: Sequence[torch.Tensor], op: str, size: int, group: Any) -> Any:
    operators.count_call("reduce_scatter_tensor", inputs)
    named = of_group(group)
    kind, scale = reduction(op, named)
    if groups.shards(named) == 1:
        return [x.clone() for x in inputs]
    return operators.functional("reduce_scatter", inputs, kind, scale, 0, groups.shards(named), groups.to_text(named))


_register("reduce_scatter_tensor", _reduce_scatter)


@special("_c10d_functional.all_to_all_single.default")
def all_to_all_single(args: Any, kwargs: Any) -> Any:
    """Parts of equal size only, as in PyTorch/XLA."""
    x, out_sizes, in_sizes, group = args
    if len({*out_sizes, *in_sizes}) > 1:
        raise NotImplementedError(
            f"all_to_all_single on xla exchanges parts of equal size, not of sizes {list(in_sizes)}: pad them"
        )
    operators.count_call("all_to_all_single", [x])
    named = of_group(group)
    if groups.shards(named) == 1:
        return x.clone()
    return xla.all_to_all(x, 0, 0, groups.shards(named), groups.to_text(named))


@special("_c10d_functional.broadcast.default")
def broadcast(args: Any, kwargs: Any) -> Any:
    x, source, group = args
    operators.count_call("broadcast", [x])
    if world.world_size() == 1:
        return x.clone()
    return operators.functional("broadcast", [x], source, groups.to_text(of_group(group)))[0]


@special("_c10d_functional.broadcast_.default")
def broadcast_(args: Any, kwargs: Any) -> Any:
    x, source, group = args
    operators.count_call("broadcast", [x])
    if world.world_size() > 1:
        operators.in_place("broadcast", [x], source, groups.to_text(of_group(group)))
    return x


@special("_c10d_functional.wait_tensor.default")
def wait_tensor(args: Any, kwargs: Any) -> Any:
    """Nothing to do: the program waits by itself."""
    return args[0]
