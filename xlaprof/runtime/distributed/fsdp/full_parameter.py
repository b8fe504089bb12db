"""A parameter that is in memory in full only while it is used; between uses each rank has its shard.

The full parameter is the same tensor for the module's whole life. Autograd saves its storage, or views of it, so the
backward pass reads the values that are in the storage then: those that were gathered again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from xlaprof.runtime.distributed import collectives
from xlaprof.runtime.trace.storage import NOWHERE, base_of
from xlaprof.runtime.trace.tensor import XLATensor

#: stands for a dot in names of shards
SEPARATOR = "_FSDP_SHARD_SEPARATOR_"


@dataclass(frozen=True)
class Options:
    """How a wrapper divides parameters and reduces gradients."""

    rank: int
    world_size: int
    sharding_groups: list[list[int]] | None
    compute_dtype: torch.dtype
    buffer_dtype: torch.dtype
    fp32_reduce_scatter: bool
    #: are shards parts of flattened parameters, of a ``multiple`` of elements? Else of their first dimension
    flat: bool
    multiple: int
    bucket_bytes: int
    coalesce_all_gather_ops: bool
    barrier_in_forward: bool
    barrier_in_backward: bool


class FullParameter:
    """One parameter: ``shard``, which the optimizer sees, and ``param``, which the module computes with."""

    def __init__(self, param: nn.Parameter, name: str, options: Options, device: torch.device) -> None:
        self._options = options
        self.name, self.size = name, param.shape
        with torch.no_grad():
            data = self.split(param.detach()).chunk(options.world_size)[options.rank].to(device, copy=True)
            empty = torch.empty(self.size, dtype=options.compute_dtype, device=device)
        shard: Any = nn.Parameter(data.contiguous(), requires_grad=param.requires_grad)
        shard._is_sharded = True
        shard._orig_size = self.size
        shard._orig_name = name
        shard._name = f"_fsdp_shard.{name}".replace(".", SEPARATOR)
        full: Any = nn.Parameter(empty, requires_grad=param.requires_grad)
        full._sharded_param = shard
        self.shard: Any = shard
        self.param = full
        self.in_memory = False  # are the full parameter's values on the device?
        self._version = -1  # the shard's, when it was gathered
        self._followed = False

    def follow(self, done: Callable[[FullParameter], None]) -> None:
        """Require a gradient if the shard does (it may be frozen or not); call ``done(self)`` when it is computed."""
        self.param.requires_grad_(self.shard.requires_grad)
        if self.param.requires_grad and not self._followed:
            self._followed = True
            self.param.register_post_accumulate_grad_hook(lambda _: done(self))

    @property
    def fresh(self) -> bool:
        """Is the full parameter in memory, and up to date with the shard?"""
        return self.in_memory and self._version == self.shard._version

    def split(self, tensor: torch.Tensor) -> torch.Tensor:
        """``tensor`` padded with zeros to split evenly; flattened, unless shards are parts of dimension 0."""
        options = self._options
        if options.flat:
            return collectives.padded(tensor.reshape(-1), options.world_size * options.multiple)
        return collectives.padded(tensor, options.world_size)

    def joined(self, shards: torch.Tensor) -> torch.Tensor:
        """The inverse of :meth:`split`."""
        if self._options.flat or not self.size:
            return shards.reshape(-1)[: self.size.numel()].view(self.size)
        return shards[: self.size[0]]

    def fill(self, shards: torch.Tensor) -> None:
        """Set the full parameter from all ranks' shards, joined, unnoticed by autograd."""
        self.param.data.copy_(self.joined(shards))
        self.in_memory = True
        self._version = self.shard._version

    def free(self) -> None:
        """Free the full parameter, if it is in memory."""
        if self.in_memory:
            self.in_memory = False
            self.drop()

    def drop(self) -> None:
        """Make the full parameter a tensor that was never written, which takes no memory."""
        storage = base_of(cast(XLATensor, self.param)._storage)
        with storage.tape.lock:
            storage.tape.invalidate(storage)
            storage.array, storage.epoch = None, NOWHERE


@torch.no_grad()
def gather(full: Sequence[FullParameter], shards: Sequence[torch.Tensor], options: Options) -> None:
    """Set the parameters ``full`` from all ranks' ``shards``."""
    cast_ = [shard.detach().to(options.compute_dtype) for shard in shards]
    groups = options.sharding_groups
    if options.coalesce_all_gather_ops:
        parts = collectives.all_gather(cast_, 0, groups, pin_layout=False) if cast_ else []
    else:
        parts = [collectives.all_gather(shard, 0, groups) for shard in cast_]
    for one, part in zip(full, parts, strict=True):
        one.fill(part)
