"""``torch_xla.experimental.distributed_checkpoint``."""

from xlaprof.runtime.spmd.checkpoint import CheckpointManager, SPMDLoadPlanner, SPMDSavePlanner, prime_optimizer
from xlaprof.torch_xla._served import served as _served

__getattr__ = _served(__name__, submodules=("_helpers", "manager", "planners", "util"))
__all__ = ["CheckpointManager", "SPMDLoadPlanner", "SPMDSavePlanner", "prime_optimizer"]
