"""How parameters are divided and gradients reduced: the settings of one wrapper, checked."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from xlaprof.runtime.distributed.job import world

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Options:
    """The settings of one wrapper; :func:`options` makes them."""

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


def options(
    *,
    sharding_groups: list[list[int]] | None,
    sharding_rank: int | None,
    sharding_world_size: int | None,
    compute_dtype: torch.dtype | None,
    buffer_dtype: torch.dtype | None,
    fp32_reduce_scatter: bool,
    flatten_parameters: bool,
    shard_param_on_dim_0: bool,
    shard_size_multiple: int,
    reduce_scatter_bucket_size_mb: int | None,
    coalesce_all_gather_ops: bool,
    barrier_in_forward: bool,
    barrier_in_backward: bool,
) -> Options:
    """The settings, with what was not given. Raises ``ValueError`` for what cannot be."""
    for name, dtype in (("compute_dtype", compute_dtype), ("buffer_dtype", buffer_dtype)):
        if dtype is not None and dtype not in FLOATS:
            raise ValueError(f"{name} must be one of {list(FLOATS)}, not {dtype}")
    if sharding_groups is None:
        rank, size = world.global_ordinal(), world.world_size()
    elif sharding_rank is None or sharding_world_size is None:
        raise ValueError("sharding_rank and sharding_world_size must be provided when sharding_groups is specified")
    else:
        rank, size = sharding_rank, sharding_world_size
    compute = compute_dtype or torch.float32
    return Options(
        rank=rank,
        world_size=size,
        sharding_groups=sharding_groups,
        compute_dtype=compute,
        buffer_dtype=buffer_dtype or compute,
        fp32_reduce_scatter=fp32_reduce_scatter,
        flat=flatten_parameters or not shard_param_on_dim_0,
        multiple=1 if shard_param_on_dim_0 else shard_size_multiple,
        bucket_bytes=(reduce_scatter_bucket_size_mb or 0) * 1024 * 1024,
        coalesce_all_gather_ops=coalesce_all_gather_ops,
        barrier_in_forward=barrier_in_forward,
        barrier_in_backward=barrier_in_backward,
    )
