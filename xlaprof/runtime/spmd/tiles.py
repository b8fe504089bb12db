"""Operations on tiles, inside a program, for manual sharding.

A manually sharded value is one array with the devices as its first dimension, a tile on each. Operations are mapped
over that dimension (``jax.vmap``), so any operation works on tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from xlaprof.runtime.tape.grow import Pseudo
from xlaprof.runtime.trace.evaluate import Evaluator
from xlaprof.runtime.trace.trie import Node, Ref, leaves

from .sharding import OpSharding


class Devices(Protocol):
    """The part of a :class:`~.placement.Partition` that programs over tiles need."""

    devices: tuple[jax.Device, ...]
    one_each: jax.sharding.NamedSharding

    def named(self, sharding: OpSharding) -> jax.sharding.NamedSharding:
        """jax's form of ``sharding``."""


def cut(value: Any, shape: tuple[int, ...]) -> Any:
    """``value`` (of numpy or jax) without its padding."""
    return value if value.shape == shape else value[tuple(slice(n) for n in shape)]


def _constrain(ctx: Any, value: Any, sharding: OpSharding, partition: Devices) -> Any:
    return jax.lax.with_sharding_constraint(value, partition.named(sharding))


#: the recorded operation of an annotation: arguments are a value, its :class:`OpSharding`, and the partition
MARK: Any = Pseudo("xla::mark_sharding", _constrain)


def _split(partition: Devices, value: Any, sharding: OpSharding) -> Any:
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


def _join(partition: Devices, tiles: Any, sharding: OpSharding, shape: tuple[int, ...]) -> Any:
    """Tiles ``[device, *tile]`` as the whole value of ``shape``."""
    if not sharding.grid:
        return tiles[0]
    first = sharding.tiles[..., 0] if sharding.partial else sharding.tiles
    tile, rank = tiles.shape[1:], len(shape)
    blocks = tiles[first.reshape(-1)].reshape(*sharding.grid, *tile)
    value = blocks.transpose([x for pair in zip(range(rank), range(rank, 2 * rank), strict=True) for x in pair])
    return cut(value.reshape([g * n for g, n in zip(sharding.grid, tile, strict=True)]), shape)


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": jnp.sum, "mul": jnp.prod, "and": jnp.all, "or": jnp.any, "min": jnp.min, "max": jnp.max,
}  # fmt: skip


def _reduced(partition: Devices, tiles: Any, kind: str, scale: float, groups: tuple[tuple[int, ...], ...]) -> Any:
    out = tiles
    for group in groups:
        at = np.array(group)
        value = REDUCTIONS[kind](tiles[at], axis=0).astype(tiles.dtype) * jnp.asarray(scale, tiles.dtype)
        out = out.at[at].set(jnp.broadcast_to(value, (len(at), *value.shape)))
    return out


def _scattered(
    partition: Devices, tiles: Any, kind: str, scale: float, dim: int, groups: tuple[tuple[int, ...], ...]
) -> Any:
    whole = _reduced(partition, tiles, kind, scale, groups)
    place = {device: i for group in groups for i, device in enumerate(group)}
    parts = jnp.stack(jnp.split(whole, len(groups[0]), axis=dim + 1), axis=1)
    devices = np.arange(len(partition.devices))
    return parts[devices, np.array([place[int(d)] for d in devices])]


def _unreachable(*_: Any) -> Any:
    raise RuntimeError("a manually sharded tensor outside of SPMD mode")


TO_SHARD: Any = Pseudo("xla::spmd_full_to_shard_shape", _unreachable)
TO_FULL: Any = Pseudo("xla::spmd_shard_to_full_shape", _unreachable)
ALL_REDUCE: Any = Pseudo("xla::spmd_all_reduce", _unreachable)
REDUCE_SCATTER: Any = Pseudo("xla::spmd_reduce_scatter", _unreachable)
_OVER_TILES: dict[Any, Callable[..., Any]] = {
    TO_SHARD: _split,
    TO_FULL: _join,
    ALL_REDUCE: _reduced,
    REDUCE_SCATTER: _scattered,
}


class ManualEvaluator(Evaluator):
    """Evaluates graphs in which some values are tiles."""

    def __init__(self, partition: Devices, tiles: set[int], *args: Any) -> None:
        super().__init__(*args)
        self.partition = partition
        self.tiles = set(tiles)  # slots of values with the devices as first dimension

    def call(self, node: Node, seed: int) -> tuple[jax.Array, ...]:
        if node.op in _OVER_TILES:
            value, *rest = (self.values[a.slot] if type(a) is Ref else a for a in node.args)
            result = _OVER_TILES[node.op](self.partition, value, *rest)
            if node.op is not TO_FULL:
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
