"""``torch_xla.distributed.zero_redundancy_optimizer``: ZeRO-1."""

from xlaprof.runtime.distributed.zero import ZeroRedundancyOptimizer

__all__ = ["ZeroRedundancyOptimizer"]
