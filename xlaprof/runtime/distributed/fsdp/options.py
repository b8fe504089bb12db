"""How parameters are divided and gradients reduced: the settings of one wrapper, checked."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from xlaprof.runtime.distributed.job import world

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Options:
    """Checked settings."""

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


def place(
    sharding_groups: list[list[int]] | None, sharding_rank: int | None, sharding_world_size: int | None
) -> tuple[int, int]:
    """This rank's number in its sharding group and the group's size; without groups, the world's."""
    if sharding_groups is None:
        return world.global_ordinal(), world.world_size()
    if sharding_rank is None or sharding_world_size is None:
        raise ValueError("sharding_rank and sharding_world_size must be provided when sharding_groups is specified")
    return sharding_rank, sharding_world_size


def checked_dtype(name: str, dtype: torch.dtype | None, default: torch.dtype) -> torch.dtype:
    """``dtype``, or ``default`` where it is ``None``. Raises ``ValueError`` for one that does not train."""
    if dtype is not None and dtype not in FLOATS:
        raise ValueError(f"{name} must be one of {list(FLOATS)}, not {dtype}")
    return dtype or default
