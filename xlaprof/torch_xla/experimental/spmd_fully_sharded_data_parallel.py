"""``torch_xla.experimental.spmd_fully_sharded_data_parallel``."""

from xlaprof.runtime.spmd import SpmdFullyShardedDataParallel

__all__ = ["SpmdFullyShardedDataParallel"]
