"""Manual sharding: a part of the program in which every device computes with its own tile.

Between :func:`enable_manual_sharding` and :func:`disable_manual_sharding` a tensor has the shape of a tile, and XLA
partitions nothing. :mod:`.tiles` computes with such values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from xlaprof.runtime.trace.storage import sig
from xlaprof.runtime.trace.tensor import XLATensor, handle
from xlaprof.runtime.trace.trie import Ref, Spec

from . import tiles
from .annotate import mark_sharding
from .mesh import Mesh, PartitionSpec, get_global_mesh
from .sharding import MANUAL, OpSharding, ShardingType
from .tensors.layout import constrain, sharding_of, unwrap_sharded_tensor
from .tensors.sharded_tensor import XLAShardedTensor, wrap_as_sharded_tensor

# -- recording -----------------------------------------------------------------------------------------------


def _record(op: Any, tensor: XLATensor, rest: tuple[Any, ...], shape: tuple[int, ...], how: OpSharding) -> XLATensor:
    tape = tensor._storage.tape
    with tape.lock:
        slot = tape.slot_of(tensor._storage)
        signature = sig(shape, tensor.dtype)
        new = tape.pseudo(op, (op, slot, *rest, signature), (Ref(slot), *rest), {}, Spec(signature))
        storage = tape.output(new, signature)
        storage.sharding = how
        return handle(storage)


def full_to_shard_shape(tensor: torch.Tensor) -> XLATensor:
    """Each device's tile of ``tensor``, which is annotated. Raises ``RuntimeError`` where it is not."""
    ours = cast(XLATensor, unwrap_sharded_tensor(tensor))
    how = sharding_of(ours)
    if how is None or how.type is ShardingType.MANUAL:
        raise RuntimeError(f"Tensor should have been annotated: mark_sharding first (it is {how or 'not sharded'})")
    return _record(tiles.TO_SHARD, ours, (how,), how.shard_shape(tuple(ours.shape)), MANUAL)


def shard_to_full_shape(
    tensor: torch.Tensor, sharding: OpSharding, shape: Sequence[int], dtype: torch.dtype | None = None
) -> XLATensor:
    """The whole of ``shape`` whose tiles by ``sharding`` are ``tensor``'s, which is manually sharded."""
    ours = cast(XLATensor, unwrap_sharded_tensor(tensor))
    how = sharding_of(ours)
    if how is None or how.type is not ShardingType.MANUAL:
        raise RuntimeError(f"Tensor should have been annotated with manual sharding, it is {how or 'not sharded'}")
    whole = tuple(shape)
    if sharding.shard_shape(whole) != tuple(ours.shape):
        raise RuntimeError(
            f"tiles of shape {list(ours.shape)} make no tensor of shape {list(whole)} with sharding {sharding}"
        )
    return _record(tiles.TO_FULL, ours, (sharding, whole), whole, sharding)


def mark_manual_sharding(t: torch.Tensor) -> XLAShardedTensor:
    """Mark a recorded value as manually sharded. Raises ``RuntimeError`` for a value on the devices."""
    ours = cast(XLATensor, unwrap_sharded_tensor(t))
    storage = ours._storage
    if storage.epoch != storage.tape.epoch or storage.slot in storage.tape.input_at:
        raise RuntimeError("Marking manual sharding is not supported for a tensor whose value is on the devices")
    constrain(storage, MANUAL)
    return wrap_as_sharded_tensor(t)


def _mesh(mesh: Mesh | None) -> Mesh:
    found = get_global_mesh() if mesh is None else mesh
    if found is None:
        raise RuntimeError("no mesh: give one (mesh=), or set_global_mesh(mesh) first")
    return found


def enable_manual_sharding(
    t: torch.Tensor, partition_spec: PartitionSpec, *, mesh: Mesh | None = None
) -> XLAShardedTensor:
    """``t``'s tiles by ``partition_spec``: from here on each device computes with its own, and nothing is partitioned.

    Results computed from it must pass :func:`disable_manual_sharding` before the next barrier. ``mesh`` is by default
    the global one.
    """
    marked = mark_sharding(t, _mesh(mesh), partition_spec)
    return wrap_as_sharded_tensor(full_to_shard_shape(marked))


def disable_manual_sharding(
    t: torch.Tensor, partition_spec: PartitionSpec, full_shape: Sequence[int], *, mesh: Mesh | None = None
) -> XLAShardedTensor:
    """The whole of ``full_shape`` whose tiles by ``partition_spec`` are ``t``."""
    marked = mark_manual_sharding(t)
    whole = shard_to_full_shape(marked, _mesh(mesh).get_op_sharding(partition_spec), full_shape, t.dtype)
    return wrap_as_sharded_tensor(whole)


def spmd_all_reduce(
    reduce_type: str, tensor: torch.Tensor, scale: float = 1.0, groups: Sequence[Sequence[int]] = ()
) -> XLATensor:
    """In a manual part: reduce the tiles of each group of devices (``sum``, ``mul``, ``min``, ``max``), and scale."""
    ours, rest = _collective(reduce_type, tensor, scale, groups)
    return _record(tiles.ALL_REDUCE, ours, rest, tuple(ours.shape), MANUAL)


def spmd_reduce_scatter(
    reduce_type: str, tensor: torch.Tensor, scale: float, scatter_dim: int, shard_count: int,
    groups: Sequence[Sequence[int]] = (),
) -> XLATensor:  # fmt: skip
    """In a manual part: as :func:`spmd_all_reduce`, but each device keeps only its part along ``scatter_dim``."""
    ours, (kind, factor, members) = _collective(reduce_type, tensor, scale, groups)
    dim = scatter_dim % ours.dim()
    if ours.shape[dim] % shard_count or shard_count != len(members[0]):
        raise RuntimeError(f"dimension {dim} of {list(ours.shape)} has no {shard_count} parts for groups {members}")
    shape = tuple(n // shard_count if i == dim else n for i, n in enumerate(ours.shape))
    return _record(tiles.REDUCE_SCATTER, ours, (kind, factor, dim, members), shape, MANUAL)


def _collective(kind: str, tensor: torch.Tensor, scale: float, groups: Any) -> tuple[XLATensor, tuple[Any, ...]]:
    ours = cast(XLATensor, unwrap_sharded_tensor(tensor))
    partition = ours._storage.tape.partition
    if kind not in tiles.REDUCTIONS:
        raise ValueError(f"Invalid reduce type: {kind}")
    if partition is None:
        raise RuntimeError("Please enable SPMD via `torch_xla.runtime.use_spmd()`")
    devices = range(len(partition.devices))
    members = tuple(tuple(map(int, group)) for group in groups) or (tuple(devices),)
    if sorted(d for group in members for d in group) != list(devices):
        raise RuntimeError(f"groups {members} do not have each of {len(devices)} devices once")
    return ours, (kind, float(scale), members)
