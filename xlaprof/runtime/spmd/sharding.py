"""The sharding of one value over the devices: XLA's ``OpSharding``, which tile each device holds.

An :class:`OpSharding` is frozen and interned: equal ones are one object, so a graph's identity compares and hashes them
by identity. PyTorch/XLA shows a sharding by XLA's text of it, :attr:`OpSharding.text`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class ShardingType(IntEnum):
    """``OpSharding.Type`` as PyTorch/XLA numbers them."""

    REPLICATED = 0
    MAXIMAL = 1
    TUPLE = 2
    TILED = 3
    MANUAL = 4
    PARTIAL = 5
    UNKNOWN = 6


class OpSharding:
    """Tiles of a value over devices.

    ``tiles[i, j, ..., r]`` is the device that holds tile ``(i, j, ...)``, one index for each dimension of the value;
    with :attr:`partial` the last axis counts the replicas of a tile. Replicated and manual ones have no tiles.

    Takes the arguments of ``torch_xla._XLAC.OpSharding`` as nested lists: the mesh of devices, the numbers of the
    groups and the devices of each group (both for ``PARTIAL`` alone), and the :class:`ShardingType`.
    """

    __slots__ = ("partial", "text", "tiles", "type")

    type: ShardingType
    tiles: Array
    partial: bool
    text: str

    def __new__(
        cls,
        tile_assignment: Sequence[Any],
        group_assignment: Sequence[Any] = (),
        replication_groups: Sequence[Sequence[int]] = (),
        sharding_type: int = ShardingType.REPLICATED,
    ) -> OpSharding:
        kind = ShardingType(sharding_type)
        if kind is ShardingType.MANUAL:
            return MANUAL
        if kind is ShardingType.TILED:
            return tiled(np.asarray(tile_assignment))
        if kind is ShardingType.PARTIAL:
            order = np.asarray(group_assignment)
            groups = np.sort(np.asarray(replication_groups), axis=1)  # replicas are interchangeable
            return tiled(groups[order.reshape(-1)].reshape(*order.shape, groups.shape[1]), partial=True)
        return REPLICATED

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of tiles along each dimension of the value; empty where there are none."""
        if not self.tiles.size:
            return ()
        return tuple(self.tiles.shape[:-1] if self.partial else self.tiles.shape)

    def shard_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of a tile of a value of ``shape``; the last tiles may be padded."""
        return tuple(-(-n // tiles) for n, tiles in zip(shape, self.grid, strict=True)) if self.grid else tuple(shape)

    def stored_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """``shape`` with its dimensions rounded up to whole tiles."""
        if not self.grid:
            return tuple(shape)
        return tuple(n * tiles for n, tiles in zip(self.shard_shape(shape), self.grid, strict=True))

    def places(self, devices: int) -> list[tuple[tuple[int, ...] | None, int]]:
        """For each of ``devices``, the index of its tile (``None``: the whole value) and its replica number."""
        if not self.grid:
            return [(None, device) for device in range(devices)]
        found: dict[int, tuple[tuple[int, ...] | None, int]] = {}
        for index in np.ndindex(*self.tiles.shape):
            tile, replica = (index[:-1], index[-1]) if self.partial else (index, 0)
            found[int(self.tiles[index])] = (tile, replica)
        return [found[device] for device in range(devices)]

    def __repr__(self) -> str:
        return self.text

    def __reduce__(self) -> Any:
        if not self.grid:
            return OpSharding, ([], [], [], int(self.type))
        return tiled, (self.tiles, self.partial)


_known: dict[tuple[Any, ...], OpSharding] = {}


def _make(kind: ShardingType, tiles: Array, partial: bool, text: str) -> OpSharding:
    made = object.__new__(OpSharding)
    made.type, made.tiles, made.partial, made.text = kind, tiles, partial, text
    return made


#: every device holds all of the value
REPLICATED = _make(ShardingType.REPLICATED, np.zeros((0,), np.int64), False, "{replicated}")
#: every device holds a value of its own; XLA does not partition operations on it
MANUAL = _make(ShardingType.MANUAL, np.zeros((0,), np.int64), False, "{manual}")


def tiled(tiles: Array, partial: bool = False) -> OpSharding:
    """The sharding with these ``tiles``, as :class:`OpSharding` has them, in its simplest form."""
    tiles = np.ascontiguousarray(tiles, np.int64)
    if partial and tiles.shape[-1] == 1:
        tiles, partial = tiles.reshape(tiles.shape[:-1]), False
    grid = tiles.shape[:-1] if partial else tiles.shape
    if math.prod(grid) == 1:
        return REPLICATED
    key = (tiles.shape, tiles.tobytes(), partial)
    found = _known.get(key)
    if found is None:
        dims, devices = ",".join(map(str, tiles.shape)), ",".join(map(str, tiles.reshape(-1)))
        text = f"{{devices=[{dims}]{devices}{' last_tile_dim_replicate' if partial else ''}}}"
        kind = ShardingType.PARTIAL if partial else ShardingType.TILED
        tiles.flags.writeable = False
        found = _known.setdefault(key, _make(kind, tiles, partial, text))
    return found
