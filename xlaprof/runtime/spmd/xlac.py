"""SPMD under the names of PyTorch/XLA's C++ module, ``torch_xla._XLAC``: the functions that are no mere aliases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from xlaprof.runtime.tape import tapes

from . import manual, mode
from .sharding import OpSharding, ShardingType
from .tensors import layout, shards
from .tensors.layout import unwrap_sharded_tensor


class XlaShardingSpec:
    """The sharding that a host tensor gets on the devices."""

    def __init__(
        self, tensor: torch.Tensor, tile_assignment: Any, group_assignment: Any, replication_groups: Any,
        sharding_type: int, minibatch: bool = False,
    ) -> None:  # fmt: skip
        self.op_sharding = OpSharding(tile_assignment, group_assignment, replication_groups, sharding_type)
        self.rank = tensor.dim()
        self.minibatch = minibatch

    def can_apply(self, t: torch.Tensor) -> bool:
        """Has ``t`` as many dimensions as the tensor that this was made for?"""
        return t.dim() == self.rank


def _get_xla_sharding_specs(tensors: Sequence[torch.Tensor]) -> list[str]:
    return [layout.get_sharding_spec(tensor) for tensor in tensors]


def _xla_annotate_custom_sharding(tensor: torch.Tensor, sharding: OpSharding) -> None:
    mode.require_spmd()
    layout.constrain(unwrap_sharded_tensor(tensor)._storage, sharding)


def _get_local_shards(tensors: Sequence[torch.Tensor]) -> list[list[tuple[torch.Tensor, str]]]:
    return [[(s.data, s.shard_device) for s in shards.local_shards(unwrap_sharded_tensor(t))] for t in tensors]


def _get_local_shard_replica_and_indices(tensors: Sequence[torch.Tensor]) -> list[list[tuple[int, shards.Indices]]]:
    return [shards.replica_and_indices(tensor) for tensor in tensors]


def _mark_manual_sharding(tensor: torch.Tensor, sharding: OpSharding) -> None:
    if sharding.type is not ShardingType.MANUAL:
        raise RuntimeError(f"the sharding is {sharding}, not manual")
    manual.mark_manual_sharding(tensor)


def _xla_get_spmd_config_is_locked() -> bool:
    return bool(tapes.existing())


def _xla_set_auto_sharding() -> None:
    mode.use_spmd(auto=True)
