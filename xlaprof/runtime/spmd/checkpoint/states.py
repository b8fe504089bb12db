"""State dicts to be saved or loaded: flat, by name, and divided into sharded tensors and the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map

from xlaprof.runtime.modes import barriers
from xlaprof.runtime.spmd.annotate import mark, wrap_if_sharded
from xlaprof.runtime.spmd.sharding import ShardingType
from xlaprof.runtime.spmd.tensors.layout import sharding_of, unwrap_sharded_tensor
from xlaprof.runtime.spmd.tensors.sharded_tensor import XLAShardedTensor
from xlaprof.runtime.spmd.tensors.shards import XLAShard
from xlaprof.runtime.trace.tensor import XLATensor

#: a name -> the keys that lead there
Paths = dict[str, tuple[Any, ...]]


@dataclass
class CpuShards:
    """The parts of a tensor that this process's devices hold, on the host."""

    shards: list[XLAShard]
    global_shape: torch.Size


def flattened(state: Mapping[Any, Any]) -> tuple[dict[str, Any], Paths]:
    """The leaves of nested dictionaries and lists by name, the keys joined by dots; and the path to each.

    Lists and dictionaries without a tensor in them stay as they are. Raises ``ValueError`` for a name that comes twice.
    """
    flat: dict[str, Any] = {}
    paths: Paths = {}

    def visit(path: tuple[Any, ...], value: Any) -> None:
        if _holds_tensors(value):
            for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
                visit((*path, key), item)
            return
        name = ".".join(map(str, path))
        if name in flat:
            raise ValueError(f"duplicated flatten key {name}")
        flat[name], paths[name] = value, path

    for key, value in state.items():
        visit((key,), value)
    return flat, paths


def _holds_tensors(value: Any) -> bool:
    if not isinstance(value, (Mapping, list)):
        return False
    items = value.values() if isinstance(value, Mapping) else value
    return any(isinstance(item, (torch.Tensor, CpuShards)) or _holds_tensors(item) for item in items)


def is_sharded(value: Any) -> bool:
    """Is ``value`` a wrapped tensor that is sharded?"""
    return isinstance(value, XLAShardedTensor) and value.sharding_type != ShardingType.REPLICATED


def divided(flat: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sharded tensors, wrapped, and everything else, which any planner handles."""
    wrapped = {name: wrap_if_sharded(v) if isinstance(v, torch.Tensor) else v for name, v in flat.items()}
    parts = {name: v for name, v in wrapped.items() if is_sharded(v) or isinstance(v, CpuShards)}
    return parts, {name: unwrap_sharded_tensor(v) for name, v in wrapped.items() if name not in parts}


def sharded_cpu_state_dict(state: Any) -> Any:
    """``state`` with its tensors on the host: sharded ones as :class:`CpuShards`."""

    def moved(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        wrapped = wrap_if_sharded(value)
        if isinstance(wrapped, XLAShardedTensor) and is_sharded(wrapped):
            return CpuShards(wrapped.local_shards, wrapped.global_tensor.shape)
        plain: torch.Tensor = unwrap_sharded_tensor(wrapped)
        return plain.detach().cpu().clone() if plain.device.type == "cpu" else plain.detach().cpu()

    return tree_map(moved, state)


def prime_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Make ``optimizer`` create its state, by a step with zero gradients, before a checkpoint is loaded.

    The step may change parameters, by weight decay for example.
    """
    barriers.sync(wait=True)
    for group in optimizer.param_groups:
        for param in group["params"]:
            if param.requires_grad:
                param.grad = torch.zeros_like(param, requires_grad=False)
                sharding = sharding_of(param) if isinstance(param, XLATensor) else None
                if sharding is not None:
                    mark(param.grad, sharding)
    optimizer.step()
    barriers.sync(wait=True)
    return optimizer
