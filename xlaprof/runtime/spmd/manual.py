"""Manual sharding: a part of the program in which every device computes with its own tile, as the user says.

Between :func:`enable_manual_sharding` and :func:`disable_manual_sharding` a tensor has the shape of a tile, and XLA
partitions nothing. In the program such a value is one array with the devices as its first dimension, a tile on each;
operations are mapped over that dimension (``jax.vmap``), so any operation can stand there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import torch

from xlaprof.runtime.tape.grow import Pseudo
from xlaprof.runtime.trace.evaluate import Evaluator, leaves
from xlaprof.runtime.trace.storage import sig
from xlaprof.runtime.trace.tensor import XLATensor, handle
from xlaprof.runtime.trace.trie import Node, Ref, Spec

from .annotate import constrain, mark_sharding, sharding_of
from .mesh import Mesh, PartitionSpec, get_global_mesh
from .placement import MARK, Partition, cut
from .sharded_tensor import XLAShardedTensor, unwrap_sharded_tensor, wrap_as_sharded_tensor
from .sharding import OpSharding, ShardingType, manual


def _split(partition: Partition, value: Any, sharding: OpSharding) -> Any:
    """A whole value as tiles: ``[device, *tile]``."""
    n = len(partition.devices)
    if not sharding.grid:
        return jnp.broadcast_to(value, (n, *value.shape))
    stored = sharding.stored_shape(value.shape)
    value = jnp.pad(value, [(0, whole - size) for whole, size in zip(stored, value.shape, strict=True)])
    tile = sharding.shard_shape(stored)
    rank = len(tile)
    blocks = value.reshape([x for pair in zip(sharding.grid, tile, strict=True) for x in pair])
    blocks = blocks.transpose([*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)]).reshape(-1, *tile)
    order = [int(np.ravel_multi_index(index, sharding.grid)) for index, _ in sharding.places(n) if index is not None]
    return blocks[np.array(order)]


def _join(partition: Partition, tiles: Any, sharding: OpSharding, shape: tuple[int, ...]) -> Any:
    """Tiles ``[device, *tile]`` as the whole value of ``shape``."""
    if not sharding.grid:
        return tiles[0]
    first = sharding.tiles[..., 0] if sharding.partial else sharding.tiles
    tile, rank = tiles.shape[1:], len(shape)
    blocks = tiles[first.reshape(-1)].reshape(*sharding.grid, *tile)
    value = blocks.transpose([x for pair in zip(range(rank), range(rank, 2 * rank), strict=True) for x in pair])
    return cut(value.reshape([g * n for g, n in zip(sharding.grid, tile, strict=True)]), shape)


def _groups_of(groups: Sequence[Sequence[int]], devices: int) -> list[list[int]]:
    return [[int(d) for d in group] for group in groups] or [list(range(devices))]


_REDUCE: dict[str, Callable[..., Any]] = {
    "sum": jnp.sum, "mul": jnp.prod, "and": jnp.all, "or": jnp.any, "min": jnp.min, "max": jnp.max,
}  # fmt: skip


def _reduced(partition: Partition, tiles: Any, kind: str, scale: float, groups: tuple[tuple[int, ...], ...]) -> Any:
    out = tiles
    for group in groups:
        at = np.array(group)
        value = _REDUCE[kind](tiles[at], axis=0).astype(tiles.dtype) * jnp.asarray(scale, tiles.dtype)
        out = out.at[at].set(jnp.broadcast_to(value, (len(at), *value.shape)))
    return out


def _scattered(
    partition: Partition, tiles: Any, kind: str, scale: float, dim: int, groups: tuple[tuple[int, ...], ...]
) -> Any:
    whole = _reduced(partition, tiles, kind, scale, groups)
    place = {device: i for group in groups for i, device in enumerate(group)}
    parts = jnp.stack(jnp.split(whole, len(groups[0]), axis=dim + 1), axis=1)
    devices = np.arange(len(partition.devices))
    return parts[devices, np.array([place[int(d)] for d in devices])]


def _unreachable(*_: Any) -> Any:
    raise RuntimeError("a manually sharded tensor outside of SPMD mode")


_TO_SHARD: Any = Pseudo("xla::spmd_full_to_shard_shape", _unreachable)
_TO_FULL: Any = Pseudo("xla::spmd_shard_to_full_shape", _unreachable)
_ALL_REDUCE: Any = Pseudo("xla::spmd_all_reduce", _unreachable)
_REDUCE_SCATTER: Any = Pseudo("xla::spmd_reduce_scatter", _unreachable)
_OVER_TILES: dict[Any, Callable[..., Any]] = {
    _TO_SHARD: _split,
    _TO_FULL: _join,
    _ALL_REDUCE: _reduced,
    _REDUCE_SCATTER: _scattered,
}


class ManualEvaluator(Evaluator):
    """Evaluates graphs in which some values are tiles."""

    def __init__(self, partition: Partition, tiles: set[int], *args: Any) -> None:
        super().__init__(*args)
        self.partition = partition
        self.tiles = set(tiles)  # slots of values with the devices as first dimension

    def call(self, node: Node, seed: int) -> tuple[jax.Array, ...]:
        if node.op in _OVER_TILES:
            value, *rest = (self.values[a.slot] if type(a) is Ref else a for a in node.args)
            result = _OVER_TILES[node.op](self.partition, value, *rest)
            if node.op is not _TO_FULL:
                self.tiles.add(node.slot)
                result = self._spread(result)
            return (result,)
        here = [slot for slot in leaves(node.args, node.kwargs)[0] if slot in self.tiles] if self.tiles else []
        if not here:
            return super().call(node, seed)
        self.tiles.update(out.slot for out in node.outs)
        if node.op is MARK:
            return (self.values[here[0]],)

        def one(*tiles: Any) -> tuple[jax.Array, ...]:
            whole = {slot: self.values[slot] for slot in here}
            self.values.update(zip(here, tiles, strict=True))
            try:
                return super(ManualEvaluator, self).call(node, seed)
            finally:
                self.values.update(whole)

        return tuple(map(self._spread, jax.vmap(one)(*(self.values[slot] for slot in here))))

    def _spread(self, tiles: Any) -> Any:
        return jax.lax.with_sharding_constraint(tiles, self.partition.one_each)


# -- recording -----------------------------------------------------------------------------------------------


def _record(op: Any, tensor: XLATensor, rest: tuple[Any, ...], shape: tuple[int, ...], how: OpSharding) -> XLATensor:
    tape = tensor._storage.tape
    tape.acquire()
    try:
        slot = tape.slot_of(tensor._storage)
        signature = sig(shape, tensor.dtype)
        new = tape.pseudo(op, (op, slot, *rest, signature), (Ref(slot), *rest), {}, Spec(signature))
        storage = tape.output(new, signature)
        storage.sharding = how
        return handle(storage)
    finally:
        tape.release()


def full_to_shard_shape(tensor: torch.Tensor) -> XLATensor:
    """Each device's tile of ``tensor``, which is annotated. Raises ``RuntimeError`` where it is not."""
    ours = cast(XLATensor, unwrap_sharded_tensor(tensor))
    how = sharding_of(ours)
    if how is None or how.type is ShardingType.MANUAL:
        raise RuntimeError(f"Tensor should have been annotated: mark_sharding first (it is {how or 'not sharded'})")
    return _record(_TO_SHARD, ours, (how,), how.shard_shape(tuple(ours.shape)), manual())


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
    return _record(_TO_FULL, ours, (sharding, whole), whole, sharding)


def mark_manual_sharding(t: torch.Tensor) -> XLAShardedTensor:
    """Say that a recorded value is manually sharded. Raises ``RuntimeError`` for one that is on the devices."""
    ours = cast(XLATensor, unwrap_sharded_tensor(t))
    storage = ours._storage
    if storage.epoch != storage.tape.epoch or storage.slot in storage.tape.input_at:
        raise RuntimeError("Marking manual sharding is not supported for a tensor whose value is on the devices")
    constrain(storage, manual())
    storage.sharding = manual()
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

    What is made of it must pass :func:`disable_manual_sharding` before the next barrier. ``mesh`` is the global one by
    default.
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
    """In a manual part: the tiles of each group of devices reduced, ``sum``, ``mul``, ``min``, ``max``, and scaled."""
    ours, rest = _collective(reduce_type, tensor, scale, groups)
    return _record(_ALL_REDUCE, ours, rest, tuple(ours.shape), manual())


def spmd_reduce_scatter(
    reduce_type: str, tensor: torch.Tensor, scale: float, scatter_dim: int, shard_count: int,
    groups: Sequence[Sequence[int]] = (),
) -> XLATensor:  # fmt: skip
    """In a manual part: as :func:`spmd_all_reduce`, of which each device keeps its part along ``scatter_dim``."""
    ours, (kind, factor, members) = _collective(reduce_type, tensor, scale, groups)
    dim = scatter_dim % ours.dim()
    if ours.shape[dim] % shard_count or shard_count != len(members[0]):
        raise RuntimeError(f"dimension {dim} of {list(ours.shape)} has no {shard_count} parts for groups {members}")
    shape = tuple(n // shard_count if i == dim else n for i, n in enumerate(ours.shape))
    return _record(_REDUCE_SCATTER, ours, (kind, factor, dim, members), shape, manual())


def _collective(kind: str, tensor: torch.Tensor, scale: float, groups: Any) -> tuple[XLATensor, tuple[Any, ...]]:
    ours = cast(XLATensor, unwrap_sharded_tensor(tensor))
    partition = ours._storage.tape.partition
    if kind not in _REDUCE:
        raise ValueError(f"Invalid reduce type: {kind}")
    if partition is None:
        raise RuntimeError("Please enable SPMD via `torch_xla.runtime.use_spmd()`")
    members = tuple(map(tuple, _groups_of(groups, len(partition.devices))))
    if sorted(d for group in members for d in group) != list(range(len(partition.devices))):
        raise RuntimeError(f"groups {members} do not have each of {len(partition.devices)} devices once")
    return ours, (kind, float(scale), members)
