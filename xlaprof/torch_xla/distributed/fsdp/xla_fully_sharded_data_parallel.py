"""``torch_xla.distributed.fsdp.xla_fully_sharded_data_parallel``."""

from xlaprof.runtime.distributed.fsdp import XlaFullyShardedDataParallel

__all__ = ["XlaFullyShardedDataParallel"]
