"""SPMD under the names of PyTorch/XLA's C++ module, ``torch_xla._XLAC``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from xlaprof.runtime.tape import tapes
from xlaprof.runtime.trace.tensor import XLATensor

from . import annotate, manual, mode
from .linear import einsum
from .sharding import OpSharding, ShardingType
from .tensors import layout, shards
from .tensors.layout import unwrap_sharded_tensor

__all__ = [
    "OpSharding", "XlaShardingSpec",
    "_get_local_shard_replica_and_indices", "_get_local_shards", "_get_xla_op_sharding",
    "_get_xla_sharding_spec", "_get_xla_sharding_specs", "_get_xla_sharding_type", "_global_tensor_from_cpu_shards",
    "_load_local_shards", "_mark_manual_sharding", "_spmd_full_to_shard_shape", "_spmd_shard_to_full_shape",
    "_xla_annotate_custom_sharding", "_xla_clear_sharding", "_xla_einsum", "_xla_force_spmd_device",
    "_xla_get_all_runtime_devices", "_xla_get_auto_sharding", "_xla_get_runtime_devices",
    "_xla_get_spmd_config_is_locked", "_xla_mark_sharding", "_xla_num_runtime_devices", "_xla_set_auto_sharding",
    "_xla_spmd_all_reduce", "_xla_spmd_reduce_scatter",
]  # fmt: skip


class XlaShardingSpec:
    """How one host tensor is to lie."""

    def __init__(
        self, tensor: torch.Tensor, tile_assignment: Any, group_assignment: Any, replication_groups: Any,
        sharding_type: int, minibatch: bool = False,
    ) -> None:  # fmt: skip
        self.op_sharding = OpSharding(tile_assignment, group_assignment, replication_groups, sharding_type)
        self.rank = tensor.dim()
        self.minibatch = minibatch

    def can_apply(self, t: torch.Tensor) -> bool:
        """Has ``t`` the rank this is for?"""
        return t.dim() == self.rank


def _ours(tensor: torch.Tensor) -> XLATensor:
    return cast(XLATensor, unwrap_sharded_tensor(tensor))


def _get_xla_sharding_spec(tensor: torch.Tensor) -> str:
    return layout.get_sharding_spec(tensor)


def _get_xla_sharding_specs(tensors: Sequence[torch.Tensor]) -> list[str]:
    return [layout.get_sharding_spec(tensor) for tensor in tensors]


def _get_xla_sharding_type(tensor: torch.Tensor) -> int | None:
    found = layout.get_sharding_type(tensor)
    return None if found is None else int(found)


def _get_xla_op_sharding(tensor: torch.Tensor) -> OpSharding | None:
    return layout.sharding_of(tensor)


def _xla_mark_sharding(tensor: torch.Tensor, sharding: OpSharding) -> None:
    annotate.mark(_ours(tensor), sharding)


def _xla_annotate_custom_sharding(tensor: torch.Tensor, sharding: OpSharding) -> None:
    mode.require_spmd()
    annotate.constrain(_ours(tensor)._storage, sharding)


def _xla_clear_sharding(tensor: torch.Tensor) -> None:
    annotate.clear_sharding(tensor)


def _get_local_shards(tensors: Sequence[torch.Tensor]) -> list[list[tuple[torch.Tensor, str]]]:
    return [[(s.data, s.shard_device) for s in shards.local_shards(_ours(t))] for t in tensors]


def _get_local_shard_replica_and_indices(tensors: Sequence[torch.Tensor]) -> list[list[tuple[int, shards.Indices]]]:
    return [shards.replica_and_indices(_ours(tensor)) for tensor in tensors]


def _load_local_shards(tensor: torch.Tensor, data: Sequence[torch.Tensor], devices: Sequence[str]) -> None:
    shards.load(_ours(tensor), data, devices)


def _global_tensor_from_cpu_shards(
    data: Sequence[torch.Tensor], sharding: OpSharding, global_shape: Sequence[int] | None = None
) -> torch.Tensor:
    return shards.global_tensor_from_cpu_shards(data, sharding, global_shape)


def _mark_manual_sharding(tensor: torch.Tensor, sharding: OpSharding) -> None:
    if sharding.type is not ShardingType.MANUAL:
        raise RuntimeError(f"the sharding is {sharding}, not manual")
    manual.mark_manual_sharding(_ours(tensor))


def _spmd_full_to_shard_shape(tensor: torch.Tensor) -> torch.Tensor:
    return manual.full_to_shard_shape(tensor)


def _spmd_shard_to_full_shape(
    tensor: torch.Tensor, sharding: OpSharding, shape: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    return manual.shard_to_full_shape(tensor, sharding, shape, dtype)


def _xla_spmd_all_reduce(
    reduce_type: str, tensor: torch.Tensor, scale: float, groups: Sequence[Sequence[int]]
) -> torch.Tensor:
    return manual.spmd_all_reduce(reduce_type, tensor, scale, groups)


def _xla_spmd_reduce_scatter(
    reduce_type: str, tensor: torch.Tensor, scale: float, scatter_dim: int, shard_count: int,
    groups: Sequence[Sequence[int]],
) -> torch.Tensor:  # fmt: skip
    return manual.spmd_reduce_scatter(reduce_type, tensor, scale, scatter_dim, shard_count, groups)


def _xla_einsum(equation: str, tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return einsum(equation, tensors)


def _xla_get_runtime_devices() -> list[str]:
    return shards.device_names()


def _xla_get_all_runtime_devices() -> list[str]:
    return shards.device_names()


def _xla_num_runtime_devices() -> int:
    return mode.addressable_runtime_device_count()


def _xla_get_spmd_config_is_locked() -> bool:
    return bool(tapes.existing())


def _xla_force_spmd_device() -> None:
    mode.use_spmd()


def _xla_set_auto_sharding() -> None:
    mode.use_spmd(auto=True)


def _xla_get_auto_sharding() -> bool:
    return mode.is_auto_spmd()
