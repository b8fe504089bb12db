"""Planners for ``torch.distributed.checkpoint``: each process writes and reads the parts that its devices hold.

A checkpoint holds global tensors: it loads into any other sharding, or none, and with PyTorch's own planner.
"""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.checkpoint import default_planner as default
from torch.distributed.checkpoint._dedup_save_plans import dedup_save_plans
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.utils import find_state_dict_object

from xlaprof.runtime.distributed.job import world
from xlaprof.runtime.spmd.tensors import shards
from xlaprof.runtime.spmd.tensors.sharded_tensor import XLAShardedTensor
from xlaprof.runtime.spmd.tensors.shards import XLAShard

from .states import CpuShards, divided, flattened


def _chunk(indices: Sequence[slice]) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(
        offsets=torch.Size(part.start for part in indices),
        sizes=torch.Size(part.stop - part.start for part in indices),
    )


def _places(value: XLAShardedTensor | CpuShards) -> list[tuple[int, list[slice]]]:
    """For each device of this process, the replica and the part that it holds."""
    if isinstance(value, CpuShards):
        return [(shard.replica_id, shard.indices) for shard in value.shards]  # type: ignore[misc]
    return shards.replica_and_indices(value.global_tensor)  # type: ignore[return-value]


class SPMDSavePlanner(default.DefaultSavePlanner):
    """``torch.distributed.checkpoint.save(state, planner=SPMDSavePlanner(), storage_writer=...)``.

    ``state`` may be of :func:`~.states.sharded_cpu_state_dict`. A part that several devices hold is written once.
    """

    def __init__(self) -> None:
        super().__init__()
        #: the sharded tensors, and everything else
        self.sharded_state_dict: dict[str, Any] = {}
        self.unsharded_state_dict: dict[str, Any] = {}
        self._local_shards: dict[str, list[XLAShard | None]] = {}

    def set_up_planner(self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False) -> None:
        # PyTorch/XLA's has no storage_meta: a second argument that is a bool is the last one
        self.is_coordinator = storage_meta if isinstance(storage_meta, bool) else is_coordinator
        flat, self.mappings = flattened(state_dict)
        self.sharded_state_dict, self.unsharded_state_dict = divided(flat)
        if world.world_size() > 1:  # all processes read tensors that are sharded over them, in the same order
            for name in self.sharded_state_dict:
                self._read(name)

    def _read(self, name: str) -> list[XLAShard | None]:
        if name not in self._local_shards:
            value = self.sharded_state_dict[name]
            self._local_shards[name] = list(value.shards if isinstance(value, CpuShards) else value.local_shards)
        return self._local_shards[name]

    def create_local_plan(self) -> SavePlan:
        plan = default.create_default_local_save_plan(self.unsharded_state_dict, self.is_coordinator)
        sharded = [item for name, value in self.sharded_state_dict.items() for item in _write_items(name, value)]
        return dataclasses.replace(plan, items=[*plan.items, *sharded], planner_data=self.mappings)

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        plans, metadata = default.create_default_global_save_plan(
            dedup_save_plans(all_plans), rewrite_index_hints=False
        )
        merged = dict(ChainMap(*(plan.planner_data for plan in plans)))
        return plans, dataclasses.replace(metadata, planner_data=merged)

    def lookup_object(self, index: MetadataIndex) -> Any:
        """The object to write at ``index``. The shards of a tensor are read together, and each is returned once."""
        if index.fqn in self.unsharded_state_dict:
            return self.unsharded_state_dict[index.fqn]
        here = self._read(index.fqn)
        assert index.index is not None
        shard, here[index.index] = here[index.index], None
        assert shard is not None, f"WriteItem has already been processed: {index}"
        return shard.unpadded_data


def _write_items(name: str, value: XLAShardedTensor | CpuShards) -> list[WriteItem]:
    if isinstance(value, CpuShards):
        size, sample = value.global_shape, value.shards[0].data
    else:
        size, sample = value.global_tensor.shape, value.global_tensor
    properties = TensorProperties.create_from_tensor(sample)
    items = []
    for number, (replica, indices) in enumerate(_places(value)):
        chunk = _chunk(indices)
        if replica == 0 and chunk.sizes.numel():
            items.append(
                WriteItem(
                    index=MetadataIndex(name, chunk.offsets, number),
                    type=WriteItemType.SHARD,
                    tensor_data=TensorWriteData(chunk=chunk, properties=properties, size=size),
                )
            )
    return items


class SPMDLoadPlanner(default.DefaultLoadPlanner):
    """``torch.distributed.checkpoint.load(state, planner=SPMDLoadPlanner(), storage_reader=...)``.

    The tensors of ``state``, on ``xla`` and sharded already, get their values in place.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sharded_state_dict: dict[str, Any] = {}
        self.unsharded_state_dict: dict[str, Any] = {}
        self._local_shards: dict[str, list[XLAShard]] = {}
        self._pending_elements: dict[str, int] = {}

    def set_up_planner(self, state_dict: Any, metadata: Metadata | None = None, is_coordinator: bool = False) -> None:
        self.metadata, self.is_coordinator, self.original_state_dict = metadata, is_coordinator, state_dict
        flat, self.mappings = flattened(state_dict)
        self.sharded_state_dict, self.unsharded_state_dict = divided(flat)

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None
        plan = default.create_default_local_load_plan(self.unsharded_state_dict, self.metadata)
        items = list(plan.items)
        for name, value in self.sharded_state_dict.items():
            known: Any = self.metadata.state_dict_metadata.get(name)
            if known is None:
                raise RuntimeError(f"Missing key in checkpoint state_dict: {name}.")
            if tuple(known.size) != tuple(value.shape):
                raise ValueError(f"Size mismatch between saved {known.size} and current: {value.shape} for {name}")
            items += create_read_items_for_chunk_list(name, known, [_chunk(indices) for _, indices in _places(value)])
        return dataclasses.replace(plan, items=items)

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        """The host tensor that values are read into: itself, or one device's shard."""
        name = index.fqn
        if name in self.unsharded_state_dict:
            return find_state_dict_object(self.unsharded_state_dict, index)  # type: ignore[no-any-return]
        if name not in self._local_shards:
            self._local_shards[name] = shards.blank_shards(self.sharded_state_dict[name].global_tensor)
            self._pending_elements[name] = sum(s.unpadded_data.numel() for s in self._local_shards[name])
        return self._local_shards[name][index.index or 0].data

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        """Count the values that have been read; after a tensor's last ones, send its shards to the devices."""
        name = read_item.dest_index.fqn
        if name not in self.sharded_state_dict:
            return
        self._pending_elements[name] -= torch.Size(read_item.lengths).numel()
        assert self._pending_elements[name] >= 0, f"Too many writes for tensor {name}"
        if self._pending_elements[name] == 0:
            self.sharded_state_dict[name].load_local_shards_(self._local_shards.pop(name))
