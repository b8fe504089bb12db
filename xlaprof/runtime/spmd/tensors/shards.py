"""Shards: the part of a tensor that each device holds, read on the host; and tensors made from shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np
import torch

from xlaprof.runtime.spmd.sharding import REPLICATED, OpSharding
from xlaprof.runtime.tape import tapes
from xlaprof.runtime.trace.storage import NOWHERE, Storage, sig
from xlaprof.runtime.trace.tensor import XLATensor, handle
from xlaprof.runtime.transfer import host

from .layout import sharding_of, unwrap_sharded_tensor

Indices = EllipsisType | list[slice]


@dataclass
class XLAShard:
    """One device's part of a tensor, as it was when it was read."""

    #: on the host; padded with zeros to the size that all shards have
    data: torch.Tensor
    #: where it belongs in the global tensor, a slice per dimension; ``...`` for the whole tensor
    indices: Indices
    #: the device it comes from, ``"CPU:2"``
    shard_device: str
    #: which of the devices that hold the same part this is
    replica_id: int

    @property
    def unpadded_data(self) -> torch.Tensor:
        """:attr:`data` without its padding."""
        return self.data[self._filled]

    @unpadded_data.setter
    def unpadded_data(self, t: torch.Tensor) -> None:
        self.data[self._filled] = t

    @property
    def _filled(self) -> Any:
        if isinstance(self.indices, EllipsisType):
            return ...
        return tuple(slice(0, part.stop - part.start) for part in self.indices)


def device_names() -> list[str]:
    """``CPU:0``, ``CPU:1``...: the devices of this process."""
    platform = tapes.devices()[0].platform.upper()
    return [f"{ {'GPU': 'CUDA'}.get(platform, platform) }:{number}" for number in _local_numbers()]


def _local_numbers() -> list[int]:
    """Numbers of this process's devices among all."""
    mine = set(tapes.devices())
    return [number for number, device in enumerate(tapes.all_devices()) if device in mine]


def _indices(sharding: OpSharding, shape: tuple[int, ...], tile: tuple[int, ...] | None) -> Indices:
    if tile is None:
        return ...
    sizes = sharding.shard_shape(shape)
    return [slice(min(i * size, n), min((i + 1) * size, n), 1) for i, size, n in zip(tile, sizes, shape, strict=True)]


def replica_and_indices(tensor: torch.Tensor) -> list[tuple[int, Indices]]:
    """For each device of this process, the number of its replica and its part of ``tensor``."""
    sharding = sharding_of(tensor) or REPLICATED
    places = sharding.places(len(tapes.all_devices()))
    local = [places[number] for number in _local_numbers()]
    return [(replica, _indices(sharding, tuple(tensor.shape), tile)) for tile, replica in local]


def local_shards(tensor: XLATensor) -> list[XLAShard]:
    """Each device's shard of ``tensor``: one read."""
    sharding = sharding_of(tensor) or REPLICATED
    (value,) = host.read([tensor._storage], "xla::local_shards")
    size = sharding.shard_shape(tuple(tensor.shape))
    shards = []
    for name, (replica, indices) in zip(device_names(), replica_and_indices(tensor), strict=True):
        if isinstance(indices, EllipsisType):
            data = value.clone()
        else:
            part = value[tuple(indices)]
            data = value.new_zeros(size)
            data[tuple(slice(n) for n in part.shape)] = part
        shards.append(XLAShard(data, indices, name, replica))
    return shards


def blank_shards(tensor: torch.Tensor) -> list[XLAShard]:
    """Shards of zeros for each device's part of ``tensor``: nothing is read."""
    size = (sharding_of(tensor) or REPLICATED).shard_shape(tuple(tensor.shape))
    return [
        XLAShard(torch.zeros(size, dtype=tensor.dtype), indices, name, replica)
        for name, (replica, indices) in zip(device_names(), replica_and_indices(tensor), strict=True)
    ]


def load(tensor: Any, data: Sequence[torch.Tensor], devices: Sequence[str]) -> None:
    """Set each device's shard of ``tensor``, which is tiled."""
    tensor = unwrap_sharded_tensor(tensor)
    sharding = sharding_of(tensor)
    if sharding is None or not sharding.grid:
        raise RuntimeError(f"Cannot load local shards into a non sharded tensor: it is {sharding or 'not sharded'}")
    names = device_names()
    if sorted(devices) != sorted(names):
        raise RuntimeError(f"expected one shard for each of {len(names)} local devices, got {len(data)}")
    by_name = dict(zip(devices, data, strict=True))
    value = _assembled([by_name[name] for name in names], sharding, tuple(tensor.shape))
    host.fill(tensor._storage.tape, tensor._storage, value.to(tensor.dtype))
    _settle(tensor._storage, sharding)


def global_tensor_from_cpu_shards(
    shards: Sequence[torch.Tensor], sharding: OpSharding, global_shape: Sequence[int] | None = None
) -> XLATensor:
    """A tensor on ``xla`` with this ``sharding``, from one host tensor for each device.

    ``global_shape`` is needed where the last tiles are padded. Raises ``RuntimeError`` where number or sizes of the
    shards do not fit.
    """
    count = len(tapes.devices())
    if len(shards) != count:
        raise RuntimeError(f"expected one shard for each of {count} local devices, got {len(shards)}")
    sizes = tuple(shards[0].shape)
    if global_shape is not None:
        shape = tuple(global_shape)
    else:
        shape = tuple(n * tiles for n, tiles in zip(sizes, sharding.grid, strict=True)) if sharding.grid else sizes
    value = _assembled(shards, sharding, shape)
    tape = tapes.tape()
    storage = Storage(tape, sig(shape, value.dtype), 0, NOWHERE, 0)
    result = handle(storage)
    host.fill(tape, storage, value)
    _settle(storage, sharding)
    return result


def _settle(storage: Storage, sharding: OpSharding) -> None:
    """Send the value of ``storage`` from the host to the devices, by ``sharding``."""
    storage.sharding = sharding
    if type(storage.array) is np.ndarray and storage.tape.partition is not None:
        storage.tape.partition.on_devices(storage)


def _assembled(data: Sequence[torch.Tensor], sharding: OpSharding, shape: tuple[int, ...]) -> torch.Tensor:
    """The global tensor of ``shape`` whose parts are ``data``, one for each device."""
    if sharding.grid and len(sharding.grid) != len(shape):
        raise RuntimeError(f"a tensor of shape {list(shape)} has no sharding {sharding}")
    size = sharding.shard_shape(shape)
    for shard in data:
        if tuple(shard.shape) != size:
            raise RuntimeError(
                f"Input tensor is not compatible with the global shape {list(shape)}: its shards are of shape "
                f"{list(size)}, not {list(shard.shape)}"
            )
    value = torch.empty(shape, dtype=data[0].dtype)
    places = sharding.places(len(tapes.all_devices()))
    for shard, number in zip(data, _local_numbers(), strict=True):  # other processes fill their own parts
        indices: Any = _indices(sharding, shape, places[number][0])
        if indices is ...:
            value[...] = shard
        else:
            part = value[tuple(indices)]
            part.copy_(shard[tuple(slice(n) for n in part.shape)])
    return value
