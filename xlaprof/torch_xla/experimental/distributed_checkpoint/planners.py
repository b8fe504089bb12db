"""``torch_xla.experimental.distributed_checkpoint.planners``."""

from xlaprof.runtime.spmd.checkpoint import SPMDLoadPlanner, SPMDSavePlanner

__all__ = ["SPMDLoadPlanner", "SPMDSavePlanner"]
